package policy

import "github.com/quietcore/quietcore/cpuallocator"

// LabelledAlignment is the NUMA alignment that the labels of a Node set, None where
// they set none. The proposal's label goes before Koordinator's later name.
func LabelledAlignment(labels map[string]string) string {
	a, _ := labelledAlignment(labels)
	return alignmentName(a)
}

// labelledAlignment is the same with the label that says so.
func labelledAlignment(labels map[string]string) (a cpuallocator.Alignment, label string) {
	for _, label := range []string{LabelAlignment, LabelAlignment2} {
		if a, ok := alignmentNamed(labels[label]); ok && a != cpuallocator.AlignNone {
			return a, label
		}
	}
	return cpuallocator.AlignNone, ""
}
