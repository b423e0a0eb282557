package probe

import (
	"context"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/doctor"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/internal/topodoc"
	"github.com/quietcore/quietcore/policy"
)

// askPowers asks the daemon, and which of its pods ask for powers. It may be of the
// version before, which knows of no powers: its record says what its pods ask for.
func askPowers(ctx context.Context, c *config.Config) doctor.DaemonFacts {
	d := askDaemon(ctx, c)
	if !d.Answers {
		return d
	}
	record, err := control.Client{Socket: c.Socket}.Record(ctx)
	if err == nil {
		d.Powers, err = powersIn(record)
	}
	if err != nil {
		d.PowersErr = err.Error()
	}
	return d
}

// powersIn plays a record to its end, where no pod is refused for want of authority.
func powersIn(record []byte) ([]policy.PowersView, error) {
	file, err := script.Parse(record)
	if err != nil {
		return nil, err
	}
	file.Config.Authority.Profile = config.Profile(policy.ProfileOpen)
	t, _, err := file.Topology.Build(topodoc.Open)
	if err != nil {
		return nil, err
	}
	player, err := script.NewPlayer(file, t)
	if err != nil {
		return nil, err
	}
	for _, step := range file.Steps {
		if _, err := player.Play(step); err != nil {
			return nil, err
		}
	}
	return player.Machine().Snapshot().Powers, nil
}
