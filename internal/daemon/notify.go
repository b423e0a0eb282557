package daemon

import (
	"log/slog"

	"github.com/quietcore/quietcore/policy"
)

// notifier tells people about a pod, in the log and by an Event.
type notifier struct {
	log   *slog.Logger
	event func(policy.Notice) // nil: no Events are written
}

func (n notifier) notify(notice policy.Notice) {
	n.log.Warn(notice.Message, "reason", notice.Reason, "pod", notice.Pod.Namespace+"/"+notice.Pod.Name)
	if n.event != nil {
		n.event(notice)
	}
}
