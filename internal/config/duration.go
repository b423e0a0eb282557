package config

import (
	"fmt"
	"strings"
	"time"
)

// Duration is a length of time as people write it: 10s, 1m30s.
type Duration time.Duration

// String writes it without parts that are zero.
func (d Duration) String() string {
	text := time.Duration(d).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("is %s, must be a length of time such as 10s or 1m30s", quote(string(text)))
	}
	*d = Duration(v)
	return nil
}
