package scenario

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/policy"
)

// codes are all that a refusal can begin with.
var codes = []string{"InsufficientCPUs", "SMTAlignmentError", "TopologyAffinityError", "ExclusivityError",
	"InvalidRequest",
	"Unauthorized", "InvalidQoS", "InvalidAnnotation", "KubeletOwned"}

var refusalPattern = regexp.MustCompile(`(?s)\b(` + strings.Join(codes, "|") + `): (.*)$`)

// refusalOf finds our sentence in what the runtime made of it. Runtimes put
// their own words before a plugin's error; the code is ours. nil: not a refusal.
func refusalOf(err error) *script.Error {
	if err == nil {
		return nil
	}
	m := refusalPattern.FindStringSubmatch(err.Error())
	if m == nil {
		return nil
	}
	return &script.Error{Code: policy.Code(m[1]), Message: strings.TrimSpace(m[2])}
}

// quotaMilli reads a cpu.max; several of them bound a container together.
func quotaMilli(files ...string) (int64, error) {
	least := int64(-1)
	for _, f := range files {
		fields := strings.Fields(f)
		if len(fields) == 0 || fields[0] == "max" {
			continue
		}
		if len(fields) != 2 {
			return 0, fmt.Errorf("cpu.max %q: want two fields", f)
		}
		quota, err1 := strconv.ParseInt(fields[0], 10, 64)
		period, err2 := strconv.ParseInt(fields[1], 10, 64)
		if err1 != nil || err2 != nil || period <= 0 {
			return 0, fmt.Errorf("cpu.max %q: not two numbers", f)
		}
		if milli := quota * 1000 / period; least < 0 || milli < least {
			least = milli
		}
	}
	return least, nil
}
