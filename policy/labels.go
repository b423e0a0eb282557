package policy

import "github.com/quietcore/quietcore/cpuallocator"

// LabelledAlignment is the NUMA alignment that a Node's labels set, None if they set none. The
// proposal's label takes precedence over Koordinator's later one.
func LabelledAlignment(labels map[string]string) string {
	a, _ := labelledAlignment(labels)
	return alignmentName(a)
}

// labelledAlignment returns the alignment and the label that sets it.
func labelledAlignment(labels map[string]string) (a cpuallocator.Alignment, label string) {
	for _, label := range []string{LabelAlignment, LabelAlignment2} {
		if a, ok := alignmentNamed(labels[label]); ok && a != cpuallocator.AlignNone {
			return a, label
		}
	}
	return cpuallocator.AlignNone, ""
}
