package reclaim

import (
	"testing"
	"time"
)

// Risk is written in percent.
func TestRiskIsAShareOfTime(t *testing.T) {
	c := Default()
	c.Risk = 1
	near(t, "a risk of 1 %", c.newForecast().risk, 0.01)
}

// A time is written without parts that are zero, and read back as it was.
func TestTimesAsText(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"24h": 24 * time.Hour, "10m": 10 * time.Minute, "30s": 30 * time.Second, "1m30s": 90 * time.Second,
		"1h30m": 90 * time.Minute, "1h0m10s": time.Hour + 10*time.Second, "0s": 0, "20h": 20 * time.Hour,
		"1m0.5s": time.Minute + time.Second/2,
	} {
		text, err := Duration(d).MarshalText()
		if err != nil || string(text) != want {
			t.Errorf("%s is written as %s (%v), want %s", d, text, err, want)
		}
		var back Duration
		if err := back.UnmarshalText(text); err != nil || time.Duration(back) != d {
			t.Errorf("%s is read as %s (%v)", text, time.Duration(back), err)
		}
	}
}
