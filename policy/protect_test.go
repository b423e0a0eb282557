package policy

import (
	"strings"
	"testing"
	"time"
)

// With ProtectRequest no class escapes caps, and no cap goes below a request, whatever
// becomes of that; without it a pod of a thousandth of a CPU escapes.
func TestCapsDownToTheRequest(t *testing.T) {
	tiny, web, batch := ls("tiny", 1, nil), ls("web", 1500, nil), bestEffort("batch", 1500)
	exempt := ls("exempt", 1, map[string]string{AnnCap: "exempt"})
	alone := ls("alone", 1, map[string]string{AnnManaged: "false"})
	cfg := Config{Authority: Authority{Namespaces: map[Power][]string{PowerCapExemption: {"default"}}}}
	for _, protect := range []bool{false, true} {
		cfg.ProtectRequest = protect
		m := small(t, cfg)
		for _, p := range []Pod{tiny, web, batch, exempt, alone, lsr("owner", 2000, nil)} {
			decided(t, m, PodRun{Pod: p})
			decided(t, m, containerOf(p, "main", *p.Resources))
		}
		for name, want := range map[string]int64{"tiny": 100, "web": 1500, "batch": 100, "owner": 2000, "exempt": 0,
			"alone": 0} {
			refused := refusal(m, CapVerdict{ID: name + "-main", Milli: 100, For: time.Minute})
			if want == 0 || !protect && name != "batch" {
				if refused == "" {
					t.Errorf("protect %t: %s is capped", protect, name)
				}
				continue
			}
			if got := m.pods[name].caps["main"].Milli; got != want {
				t.Errorf("protect %t: %s is capped to %dm, want %dm (%s)", protect, name, got, want, refused)
			}
		}
	}
	m := small(t, Config{ProtectRequest: true})
	decided(t, m, PodRun{Pod: web})
	decided(t, m, containerOf(web, "main", *web.Resources))
	decided(t, m, CapVerdict{ID: "web-main", Milli: 100, For: time.Minute})
	decided(t, m, ContainerUpdate{ID: "web-main", Resources: &Resources{2500, NoLimit}})
	if got := m.pods["web"].caps["main"].Milli; got != 2500 {
		t.Errorf("its request grew to 2500m under a cap of %dm", got)
	}
	if text := refusal(m, CapVerdict{ID: "none", Milli: 1, For: 1}); !strings.Contains(text, "does not run") {
		t.Errorf("got %q", text)
	}
}
