// Package cubridge declares the calls that package cuda makes through
// gorgonia.org/cu. Its package overcu makes and registers them, which the
// module's root imports.
package cubridge
