package cgroup

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
)

// parseSet reads a cpuset file: the kernel's list format and a newline.
func parseSet(text string) (cpuset.Set, error) {
	return cpuset.Parse(strings.TrimSpace(text))
}

// parseCPUMax reads cpu.max: "max 100000\n" or "200000 100000\n".
func parseCPUMax(text string) (Quota, error) {
	fields := strings.Fields(text)
	if len(fields) != 2 {
		return Quota{}, fmt.Errorf("cpu.max %s: want a quota and a period", quoted(text))
	}
	period, err := parsePositive(fields[1])
	if err != nil || period == 0 {
		return Quota{}, fmt.Errorf("cpu.max %s: the period is not a number of microseconds", quoted(text))
	}
	if fields[0] == "max" {
		return Quota{Micros: -1, Period: period}, nil
	}
	micros, err := parsePositive(fields[0])
	if err != nil {
		return Quota{}, fmt.Errorf("cpu.max %s: the quota is neither max nor a number of microseconds", quoted(text))
	}
	return Quota{Micros: micros, Period: period}, nil
}

// parseCFS reads cgroup v1's cpu.cfs_quota_us ("-1\n" for none) and
// cpu.cfs_period_us.
func parseCFS(quota, period string) (Quota, error) {
	q := strings.TrimSpace(quota)
	if q == "-1" {
		q = "max"
	}
	return parseCPUMax(q + " " + strings.TrimSpace(period))
}

func parsePositive(text string) (int64, error) {
	if text == "" || text[0] < '0' || text[0] > '9' {
		return 0, fmt.Errorf("%s is not a number", quoted(text))
	}
	return strconv.ParseInt(text, 10, 64)
}

// cgroup v1 counts shares from 2 to 262144 and v2 weight from 1 to 10000; the mapping is linear
// (the runtimes' older one, exact at both ends). A weight that was written reads back as the same
// weight.
func weightToShares(weight uint64) uint64 { return 2 + ((weight-1)*262142+9998)/9999 }

func sharesToWeight(shares uint64) uint64 {
	shares = min(max(shares, 2), 262144)
	return 1 + (shares-2)*9999/262142
}

// WeightOf is the weight of a request in thousandths of a CPU by kubelet's rule of 1024 shares a
// CPU.
func WeightOf(milli int64) uint64 {
	return sharesToWeight(uint64(max(milli, 0)) * 1024 / 1000)
}

// quoted shortens text of unknown origin to keep an error on one line.
func quoted(text string) string {
	const most = 60
	if len(text) > most {
		return strconv.QuoteToASCII(text[:most]) + "…"
	}
	return strconv.QuoteToASCII(text)
}
