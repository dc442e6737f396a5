// Goroutine labels have a body in package runtime.
