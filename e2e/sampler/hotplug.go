package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/quietcore/quietcore/e2e/sampler/sweep"
)

// settle lets a switch be one that comes out of the blue.
const settle = 200 * time.Millisecond

func switchAndTime(ctx context.Context, file string) ([]sweep.Switched, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var s sweep.Switches
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	var out []sweep.Switched
	for range s.Rounds {
		for _, c := range s.CPUs {
			for _, online := range []bool{false, true} {
				one, err := switchOne(ctx, s.Limit, c, online)
				if err != nil {
					return out, err
				}
				out = append(out, one)
			}
		}
	}
	return out, nil
}

func switchOne(ctx context.Context, limit time.Duration, c sweep.Switch, online bool) (sweep.Switched, error) {
	value, want := "0", c.Off
	if online {
		value, want = "1", c.On
	}
	time.Sleep(settle)
	began := time.Now()
	if err := os.WriteFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", c.CPU), []byte(value), 0); err != nil {
		return sweep.Switched{}, err
	}
	written := time.Now()
	for {
		now, err := takePicture(cgroupRoot)
		switch {
		case err != nil:
			return sweep.Switched{}, err
		case maps.Equal(now, want):
			return sweep.Switched{CPU: c.CPU, Online: online, Write: written.Sub(began), Repair: time.Since(written)},
				nil
		case time.Since(written) > limit:
			return sweep.Switched{}, fmt.Errorf("CPU %d, online %t: not repaired within %v: %s", c.CPU, online, limit,
				difference(now, want))
		case ctx.Err() != nil:
			return sweep.Switched{}, ctx.Err()
		}
	}
}

func difference(now, want map[string]string) string {
	text := ""
	for path, w := range want {
		if n, there := now[path]; n != w {
			text += fmt.Sprintf("%s has %q (there %t), want %q; ", path, n, there, w)
		}
	}
	return text
}
