// Package orders tests calls that meet in a chosen order.
package orders
