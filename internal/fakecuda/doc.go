// Package fakecuda is the control of the stand-in CUDA driver library in
// libcuda, for tests that run on it because CUPOOL_LIBCUDA names it: make calls
// fail, slow work down, count calls. Where another driver is loaded, or none,
// Loaded is false and the rest does nothing. README.md has how the library is
// built and what it can do.
package fakecuda
