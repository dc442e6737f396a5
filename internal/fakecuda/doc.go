// Package fakecuda is the control of the stand-in CUDA driver library in
// libcuda, for tests that are built with the tag gpu and run on it: make
// calls fail, slow work down, count calls. It links nothing; where the real
// driver is loaded, Loaded is false and the rest does nothing. README.md has
// how the library is built and what it can do.
package fakecuda
