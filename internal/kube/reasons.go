package kube

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/quietcore/quietcore/policy"
)

// kind is the type and action of an Event.
type kind struct{ eventType, action string }

// kindOf maps the reasons of notices. An unlisted reason is a warning, so that it is
// not missed.
func kindOf(reason string) kind {
	switch reason {
	case string(policy.InvalidQoS), string(policy.InvalidAnnotation), "InvalidRequest", "SMTAlignmentError",
		"TopologyAffinityError",
		"InsufficientCPUs", "ExclusivityError", string(policy.Unauthorized), string(policy.KubeletOwned):
		return kind{corev1.EventTypeWarning, "Admit"}
	case "CPUsHealed", policy.ReasonMoved, "CPUsOnline":
		return kind{corev1.EventTypeNormal, "Place"}
	case "AllocationLost", "CPUsOffline", "CPUsReturned", "CPUsTaken", "KubeletPinMoved", "LimitUnequal",
		"ForeignClaimOverlaps", "NUMANodeLost", "PodUnannounced", "SharedPoolOverlaps",
		policy.ReasonRival:
		return kind{corev1.EventTypeWarning, "Place"}
	case "CPUInterference", "CPUCapped", "CPUMovedOff", "CPUIdleOnly", "MemoryBandwidthLimited", "BestEffortMoved",
		"CPUEvictionWished":
		return kind{corev1.EventTypeWarning, "Protect"}
	case "BatchEvicted", "BatchEvictionBlocked", "LendingHalted":
		return kind{corev1.EventTypeWarning, "Reclaim"}
	case "CPUCapLifted", "CPUMoveEnded", "CPUIdleOnlyEnded", "MemoryBandwidthRestored":
		return kind{corev1.EventTypeNormal, "Protect"}
	case "AnnotationIgnored", "CapExemptionIgnored", "ResourceStatusIgnored", "UnknownNodeLabel":
		return kind{corev1.EventTypeWarning, "Configure"}
	}
	return kind{corev1.EventTypeWarning, "Place"}
}
