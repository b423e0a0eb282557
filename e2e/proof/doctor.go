package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
)

const (
	runtimeConfig = "/etc/containerd/config.toml"
	daemonConfig  = "/etc/quietcore/config.yaml"
	stateDir      = "/var/lib/quietcore"
	kubeletDir    = "/var/lib/kubelet"
	rivalName     = "koordlet"
	secondName    = "second"
)

// fault is a fault of a node, and the finding that doctor must report.
type fault struct {
	id, level     string
	plant, repair func(context.Context) error
}

// doctor injects faults into a healthy node, one after the other. Doctor must find
// each, and must not once it is repaired.
func doctor(ctx context.Context, n *node) ([]figure, error) {
	if err := n.fresh(ctx); err != nil {
		return nil, err
	}
	well, err := n.findings(ctx)
	if err != nil {
		return nil, err
	}
	for id, level := range well {
		if level == "error" {
			return nil, fmt.Errorf("doctor finds %s on a node on which all is well", id)
		}
	}
	faults := n.faults()
	for _, f := range faults {
		if well[f.id] == f.level {
			return nil, fmt.Errorf("%s is there before it is planted", f.id)
		}
		if err := f.plant(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", f.id, err)
		}
		if err := n.untilFinding(ctx, f.id, f.level); err != nil {
			return nil, err
		}
		if err := f.repair(ctx); err != nil {
			return nil, fmt.Errorf("%s: mending: %w", f.id, err)
		}
		if err := n.untilFinding(ctx, f.id, well[f.id]); err != nil {
			return nil, fmt.Errorf("repaired: %w", err)
		}
	}
	return []figure{{Name: "faults injected, found and repaired", Value: len(faults)},
		{Name: "findings on a node on which all is well", Value: len(well)}}, nil
}

func (n *node) faults() []fault {
	return []fault{
		n.edited("nri.disabled", "warning", runtimeConfig, "disable = false", "disable = true"),
		n.edited("nri.disable-connections", "warning", runtimeConfig, "disable = false",
			"disable = false\n  disable_connections = true"),
		n.edited("nri.timeout", "warning", runtimeConfig, "plugin_request_timeout = '30s'",
			"plugin_request_timeout = '500ms'"),
		n.edited("nri.registration-timeout", "warning", runtimeConfig, "plugin_registration_timeout = '1m'",
			"plugin_registration_timeout = '1s'"),
		n.turnedOn(),
		n.changed("config.invalid", "error", func(all map[string]any) { all["nobodyKnowsThis"] = 1 }),
		n.command("state.open", "warning", []string{"chmod", "0755", stateDir}, []string{"chmod", "0700", stateDir}),
		n.written("kubelet.static", "note",
			"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: "+
				"static\nreservedSystemCPUs: '0'\n"),
		n.written("kubelet.options", "warning",
			"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: "+
				"static\nreservedSystemCPUs: '0'\ncpuManagerPolicyOptions: {nobody-knows-this: 'true'}\n"),
		n.rival(),
		n.second(),
		n.stopped(),
		n.damaged(),
	}
}

// findings are doctor's, by what they are called. Its exit code says no more than they do.
func (n *node) findings(ctx context.Context) (map[string]string, error) {
	out, err := n.Exec(ctx, "/usr/bin/quietcore", "doctor", "--all", "-o", "json")
	var said struct {
		Findings []struct{ ID, Level string }
	}
	if bad := json.Unmarshal([]byte(out.Stdout), &said); bad != nil || len(said.Findings) == 0 {
		return nil, fmt.Errorf("doctor says %.500q: %w", out.Stdout, errors.Join(err, bad))
	}
	all := map[string]string{}
	for _, f := range said.Findings {
		all[f.ID] = f.Level
	}
	return all, nil
}

// untilFinding waits for a finding to be of a level, or not to be there.
func (n *node) untilFinding(ctx context.Context, id, level string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		now, err := n.findings(ctx)
		switch {
		case err == nil && now[id] == level:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("doctor says of %s %q, want %q: %w", id, now[id], level, errors.Join(ctx.Err(), err))
		}
	}
}

// edited is a change of one of the node's files.
func (n *node) edited(id, level, file, from, to string) fault {
	var was string
	return fault{
		id: id, level: level,
		plant: func(ctx context.Context) (err error) {
			if was, err = n.ReadFile(ctx, file); err != nil {
				return err
			}
			if !strings.Contains(was, from) {
				return fmt.Errorf("%s has no %q:\n%s", file, from, was)
			}
			return n.WriteFile(ctx, file, strings.Replace(was, from, to, 1))
		},
		repair: func(ctx context.Context) error { return n.WriteFile(ctx, file, was) },
	}
}

// turnedOn is NRI that is off, repaired as users do.
func (n *node) turnedOn() fault {
	f := n.edited("nri.disabled", "warning", runtimeConfig, "disable = false", "disable = true")
	back := f.repair
	f.repair = func(ctx context.Context) error {
		before, err := n.ReadFile(ctx, runtimeConfig)
		if err != nil {
			return err
		}
		dry, err := n.Exec(ctx, "/usr/bin/quietcore", "enable-nri", "--dry-run")
		if err != nil {
			return fmt.Errorf("%w: %s", err, dry.Stderr)
		}
		if !strings.Contains(dry.Stdout, "+") || !strings.Contains(dry.Stdout, "disable = false") {
			return fmt.Errorf("enable-nri --dry-run does not show the change: %q", dry.Stdout)
		}
		if now, err := n.ReadFile(ctx, runtimeConfig); err != nil || now != before {
			return errors.Join(errors.New("enable-nri --dry-run wrote"), err)
		}
		if out, err := n.Exec(ctx, "/usr/bin/quietcore", "enable-nri", "--apply"); err != nil {
			return fmt.Errorf("%w: %s", err, out.Stderr)
		}
		now, err := n.findings(ctx)
		if err == nil && now["nri.disabled"] != "" {
			err = errors.New("enable-nri --apply did not turn NRI on")
		}
		return errors.Join(err, back(ctx))
	}
	return f
}

func (n *node) command(id, level string, plant, repair []string) fault {
	do := func(argv []string) func(context.Context) error {
		return func(ctx context.Context) error {
			out, err := n.Exec(ctx, argv...)
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out.Stderr)
			}
			return err
		}
	}
	return fault{id: id, level: level, plant: do(plant), repair: do(repair)}
}

// written is a configuration of kubelet, which runs on no guest of ours.
func (n *node) written(id, level, text string) fault {
	const file = kubeletDir + "/config.yaml"
	named := n.changed(id, level, func(all map[string]any) {
		node, _ := all["node"].(map[string]any)
		node["kubelet"] = map[string]any{"configFile": file}
	})
	return fault{
		id: id, level: level,
		plant: func(ctx context.Context) error {
			return errors.Join(n.WriteFile(ctx, file, text), named.plant(ctx))
		},
		repair: func(ctx context.Context) error {
			_, err := n.Exec(ctx, "rm", file)
			return errors.Join(named.repair(ctx), err)
		},
	}
}

// changed is a change of the daemon's configuration.
func (n *node) changed(id, level string, change func(map[string]any)) fault {
	var was string
	return fault{
		id: id, level: level,
		plant: func(ctx context.Context) (err error) {
			if was, err = n.ReadFile(ctx, daemonConfig); err != nil {
				return err
			}
			return n.configure(ctx, was, daemonConfig, change)
		},
		repair: func(ctx context.Context) error { return n.WriteFile(ctx, daemonConfig, was) },
	}
}

// configure writes a configuration that is another's but for a change.
func (n *node) configure(ctx context.Context, text, file string, change func(map[string]any)) error {
	var all map[string]any
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return fmt.Errorf("%s: %w", daemonConfig, err)
	}
	change(all)
	changed, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return n.WriteFile(ctx, file, string(changed))
}

// rival is a program with the name of another one that places containers.
func (n *node) rival() fault {
	return fault{
		id: "plugins.conflict", level: "error",
		plant: func(ctx context.Context) error {
			if _, err := n.Exec(ctx, "ln", "-s", samplerPath, "/run/"+rivalName); err != nil {
				return err
			}
			return n.Start(ctx, rivalName, "/run/"+rivalName, "spin", "", "1 1ms 10h")
		},
		repair: func(ctx context.Context) error { return n.Signal(ctx, rivalName, int(syscall.SIGKILL)) },
	}
}

// second is a daemon that was started with another configuration.
func (n *node) second() fault {
	const config, dir = "/run/second.yaml", "/run/second"
	return fault{
		id: "instances.several", level: "error",
		plant: func(ctx context.Context) error {
			text, err := n.ReadFile(ctx, daemonConfig)
			if err != nil {
				return err
			}
			err = n.configure(ctx, text, config, func(all map[string]any) {
				all["mode"], all["state"], all["listen"] = "observe", map[string]any{"dir": dir}, ""
				all["socket"] = dir + ".sock"
			})
			if err != nil {
				return err
			}
			return n.Start(ctx, secondName, "/usr/bin/quietcore", "run", "--config", config)
		},
		repair: func(ctx context.Context) error { return n.Signal(ctx, secondName, int(syscall.SIGTERM)) },
	}
}

func (n *node) stopped() fault {
	return fault{id: "daemon.absent", level: "warning", plant: n.KillDaemon, repair: func(ctx context.Context) error {
		return n.StartDaemon(ctx)
	}}
}

// damaged is an invalid state file. The daemon that repairs it renames the file.
func (n *node) damaged() fault {
	return fault{
		id: "state.damaged", level: "warning",
		plant: func(ctx context.Context) error {
			if err := n.KillDaemon(ctx); err != nil {
				return err
			}
			return n.WriteFile(ctx, stateDir+"/state.json", "no state at all")
		},
		repair: func(ctx context.Context) error { return n.StartDaemon(ctx) },
	}
}
