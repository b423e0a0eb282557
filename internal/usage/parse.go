package usage

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

var (
	errNumber = errors.New("is not a number that fits")
	errUsage  = errors.New("has no line usage_usec")
	errSome   = errors.New(`has no line "some" with a total`)
)

// parseStat reads cpu.stat:
//
//	v2: usage_usec 52\nuser_usec 50\nsystem_usec 2\nnr_periods 7\nnr_throttled 1\nthrottled_usec 9\n
//	v1: nr_periods 7\nnr_throttled 1\nthrottled_time 9000\n
//
// Lines of other names may be there; those of the quota are missing on v2 where
// the controller is not enabled. v1 has the time used elsewhere.
func parseStat(text []byte, v1 bool, r *Reading) error {
	used := false
	for len(text) > 0 {
		line := text
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			line, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		key, value, _ := bytes.Cut(line, []byte{' '})
		var err error
		switch string(key) {
		case "usage_usec":
			if !v1 {
				r.CPU, err = parseTime(value, time.Microsecond)
				used = true
			}
		case "nr_periods":
			r.Periods, err = parseNumber(value)
			r.Quota = true
		case "nr_throttled":
			r.Throttled, err = parseNumber(value)
		case "throttled_usec":
			r.Stopped, err = parseTime(value, time.Microsecond)
		case "throttled_time":
			r.Stopped, err = parseTime(value, 1)
		}
		if err != nil {
			return lineError(line, err)
		}
	}
	if !used && !v1 {
		return errUsage
	}
	return nil
}

// parsePressure reads cpu.pressure:
//
//	some avg10=0.12 avg60=0.20 avg300=0.05 total=20773
//	full avg10=0.00 avg60=0.00 avg300=0.00 total=0
//
// and takes the total of "some", in microseconds: the averages lag behind.
func parsePressure(text []byte) (time.Duration, error) {
	line, _, _ := bytes.Cut(text, []byte{'\n'})
	i := bytes.LastIndex(line, []byte(" total="))
	if !bytes.HasPrefix(line, []byte("some ")) || i < 0 {
		return 0, errSome
	}
	t, err := parseTime(line[i+len(" total="):], time.Microsecond)
	if err != nil {
		return 0, lineError(line, err)
	}
	return t, nil
}

// parseTime reads a count of units.
func parseTime(text []byte, unit time.Duration) (time.Duration, error) {
	n, err := parseNumber(text)
	if err != nil || n > math.MaxInt64/uint64(unit) {
		return 0, errNumber
	}
	return time.Duration(n) * unit, nil
}

func parseNumber(text []byte) (uint64, error) {
	if len(text) == 0 || len(text) > 20 {
		return 0, errNumber
	}
	var n uint64
	for _, c := range text {
		d := uint64(c - '0')
		if d > 9 || n > (math.MaxUint64-d)/10 {
			return 0, errNumber
		}
		n = n*10 + d
	}
	return n, nil
}

// lineError keeps text of unknown origin to one short line.
func lineError(line []byte, err error) error {
	return fmt.Errorf("line %s %w", strconv.QuoteToASCII(string(line[:min(len(line), 60)])), err)
}
