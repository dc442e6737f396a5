package device

import "errors"

// OnlyLost keeps the error of a lost device, which ends everything, and drops
// others, which leave memory waiting.
func OnlyLost(err error) error {
	if errors.Is(err, ErrDeviceLost) {
		return err
	}
	return nil
}

// OnlyLostOrLate is OnlyLost that keeps a *WaitError, too.
func OnlyLostOrLate(err error) error {
	if IsLate(err) {
		return err
	}
	return OnlyLost(err)
}

// IsLate reports whether an error is that of a wait that ended before the work.
func IsLate(err error) bool {
	if err == nil {
		return false // without memory for what errors.As fills
	}
	var late *WaitError
	return errors.As(err, &late)
}

// NotLate drops the error of a wait that ended before the work.
func NotLate(err error) error {
	if IsLate(err) {
		return nil
	}
	return err
}
