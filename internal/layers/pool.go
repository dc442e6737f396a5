package layers

import (
	"math"
	"unsafe"
)

// Pooling is a step over windows of images: planes of H×W elements to planes
// of OH×OW. Window (r, c) begins at (r, c)·Stride - Pad, and counts only where it
// lies in the image.
type Pooling struct {
	Planes, H, W, OH, OW int
	Size, Pad, Stride    [2]int
	Divisor              float64    // of averages; 0: the number of the window's elements
	Activation           Activation // what made x, of the gradient of a maximum
}

// inside returns what of window o lies in the n elements of axis d.
func (p *Pooling) inside(d, o, n int) (from, to int) {
	from = o*p.Stride[d] - p.Pad[d]
	return max(from, 0), min(from+p.Size[d], n)
}

// windows calls f for each window: its number, and its elements' rows and columns
// and the number of the image's first element.
func (p *Pooling) windows(f func(o, image, top, bottom, left, right int)) {
	for plane := range p.Planes {
		for r := range p.OH {
			top, bottom := p.inside(0, r, p.H)
			for c := range p.OW {
				left, right := p.inside(1, c, p.W)
				f((plane*p.OH+r)*p.OW+c, plane*p.H*p.W, top, bottom, left, right)
			}
		}
	}
}

// divisor returns what the sum of a window is divided by.
func (p *Pooling) divisor(top, bottom, left, right int) float64 {
	if p.Divisor != 0 {
		return p.Divisor
	}
	return float64((bottom - top) * (right - left))
}

// lowest returns the lowest finite number.
func lowest[T Float]() T {
	var x T
	if unsafe.Sizeof(x) == 4 {
		return T(-math.MaxFloat32)
	}
	big := -math.MaxFloat64
	return T(big)
}

// largest returns the first of a window's largest elements above the lowest
// number, or -1. A NaN is never larger.
func largest[T Float](p *Pooling, x []T, image, top, bottom, left, right int) (at int, v T) {
	at, v = -1, lowest[T]()
	for r := top; r < bottom; r++ {
		for c := left; c < right; c++ {
			if i := image + r*p.W + c; x[i] > v {
				at, v = i, x[i]
			}
		}
	}
	return at, v
}

// MaxPool sets y to the largest elements of the windows of x.
func MaxPool[T Float](p *Pooling, x, y []T) {
	p.windows(func(o, image, top, bottom, left, right int) {
		_, y[o] = largest(p, x, image, top, bottom, left, right)
	})
}

// MaxPoolBack sets dx to the gradient by x, or by what the activation made x of.
func MaxPoolBack[T Float](p *Pooling, x, dy, dx []T) {
	clear(dx)
	p.windows(func(o, image, top, bottom, left, right int) {
		if at, _ := largest(p, x, image, top, bottom, left, right); at >= 0 {
			dx[at] += dy[o]
		}
	})
	if p.Activation != None {
		ActivateBack(dx, x, dx, p.Activation)
	}
}

// AvgPool sets y, which may be x, to the averages of the windows of x in order, 0
// where nothing of the image is in a window.
func AvgPool[T Float](p *Pooling, x, y []T) {
	p.windows(func(o, image, top, bottom, left, right int) {
		var sum T
		for r := top; r < bottom; r++ {
			for c := left; c < right; c++ {
				sum += x[image+r*p.W+c]
			}
		}
		y[o] = 0
		if top < bottom && left < right {
			y[o] = sum / T(p.divisor(top, bottom, left, right))
		}
	})
}

// AvgPoolBack sets dx to the gradient by x.
func AvgPoolBack[T Float](p *Pooling, dy, dx []T) {
	clear(dx)
	p.windows(func(o, image, top, bottom, left, right int) {
		for r := top; r < bottom; r++ {
			for c := left; c < right; c++ {
				dx[image+r*p.W+c] += dy[o] / T(p.divisor(top, bottom, left, right))
			}
		}
	})
}

// AvgPoolSmear sets dx to what Gorgonia has for the gradient of its average
// pooling: each window's gradient goes to the window's last element, and then
// every element becomes the average of the window whose number it has, over
// elements of which some are averages already.
func AvgPoolSmear[T Float](p *Pooling, dy, dx []T) {
	clear(dx)
	p.windows(func(o, image, top, bottom, left, right int) {
		if top < bottom && left < right {
			dx[image+(bottom-1)*p.W+right-1] += dy[o]
		}
	})
	every := *p
	every.OH, every.OW = p.H, p.W
	AvgPool(&every, dx, dx)
}
