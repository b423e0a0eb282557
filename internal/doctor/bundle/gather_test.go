package bundle

import (
	"strings"
	"testing"
)

func TestOfTheKernelsCommandLineOnlyWhatIsAboutCPUs(t *testing.T) {
	got := strings.Join(
		aboutCPUs(
			"root=/dev/sda ks=https://user:s3cret@h/x isolcpus=2-3 nosmt password=x "+
				"systemd.unified_cgroup_hierarchy=0 init=/bin/sh\n"), " ")
	if got != "isolcpus=2-3 nosmt systemd.unified_cgroup_hierarchy=0" {
		t.Error(got)
	}
}
