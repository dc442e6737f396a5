package layers

import (
	"runtime"
	"sync"
)

// A Window is the sizes of a convolution, along height and width: of images, of
// the result, and of the window that moves over an image.
type Window struct {
	Channels              int
	In, Out               [2]int
	Taps                  [2]int // elements of the window
	Pad, Stride, Dilation [2]int
}

// Image returns the number of elements of an image.
func (w *Window) Image() int { return w.Channels * w.In[0] * w.In[1] }

// Pixels returns the number of elements of the result's images in a channel.
func (w *Window) Pixels() int { return w.Out[0] * w.Out[1] }

// Products returns how many elements of an image go into one of the result.
func (w *Window) Products() int { return w.Channels * w.Taps[0] * w.Taps[1] }

// Im2Col sets col to the windows of images x, those of a pixel in a row. It is 0
// where a window reaches outside.
func Im2Col[T Float](x, col []T, w *Window) {
	clear(col)
	eachImage(x, col, w, func(x, col []T) {
		w.each(func(in, at int) { col[at] = x[in] })
	})
}

// Col2Im sets each element of images x to the sum of its occurrences in col.
func Col2Im[T Float](col, x []T, w *Window) {
	eachImage(x, col, w, func(x, col []T) {
		clear(x)
		w.each(func(in, at int) { x[in] += col[at] })
	})
}

// each calls f with the places in an image, and in its part of col, of all elements
// of all windows that lie within the image, in col's order.
func (w *Window) each(f func(in, at int)) {
	at := 0
	for i := range w.Out[0] {
		for j := range w.Out[1] {
			for c := range w.Channels {
				for ty := range w.Taps[0] {
					y := i*w.Stride[0] - w.Pad[0] + ty*w.Dilation[0]
					for tx := range w.Taps[1] {
						x := j*w.Stride[1] - w.Pad[1] + tx*w.Dilation[1]
						if y >= 0 && y < w.In[0] && x >= 0 && x < w.In[1] {
							f((c*w.In[0]+y)*w.In[1]+x, at)
						}
						at++
					}
				}
			}
		}
	}
}

// eachImage calls f with each image and its part of col, several at once.
func eachImage[T Float](x, col []T, w *Window, f func(x, col []T)) {
	image, part := w.Image(), w.Pixels()*w.Products()
	if image == 0 {
		return
	}
	var wg sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range len(x) / image {
		free <- struct{}{}
		wg.Go(func() {
			f(x[i*image:][:image], col[i*part:][:part])
			<-free
		})
	}
	wg.Wait()
}

// ChannelsFirst sets y to x with the channels of each image, of which x has all of
// a pixel in a row, one after the other.
func ChannelsFirst[T any](x, y []T, channels, pixels int) {
	for i := 0; i < len(x); i += channels * pixels {
		for p := range pixels {
			for c := range channels {
				y[i+c*pixels+p] = x[i+p*channels+c]
			}
		}
	}
}

// Activate applies an activation to every element.
func Activate[T Float](x []T, act Activation) {
	for i, v := range x {
		x[i] = activate(act, v)
	}
}
