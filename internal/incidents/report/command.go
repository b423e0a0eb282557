package report

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/incidents"
)

// FilterFlags are the flags that choose incidents, of whichever program asks.
func FilterFlags(cmd *cobra.Command, f *Filter) {
	cmd.Flags().StringVar(&f.SinceText, "since", "", "TIME of the oldest: 90m, 24h, 7d, a day or a time")
	cmd.Flags().StringVar(&f.UntilText, "until", "", "TIME before which the newest is")
	cmd.Flags().StringVar(&f.Victim, "victim", "", "JOB that was disturbed")
	cmd.Flags().StringVar(&f.Antagonist, "antagonist", "", "JOB that was blamed")
	for _, name := range []string{"since", "until"} {
		cli.Completes(cmd, name, "1h", "24h", "7d", "30d")
	}
}

// ListCommand is `list`. run gets what was asked for and an output format, text or json.
func ListCommand(run func(*cobra.Command, incidents.Filter, string) error) *cobra.Command {
	var f Filter
	verdicts := []string{incidents.None, incidents.Observe, incidents.Test, incidents.Cap, incidents.Move}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list incidents, the newest first",
		Args:  cli.NoArgs,
	}
	FilterFlags(cmd, &f)
	cmd.Flags().StringVar(&f.Verdict, "verdict", "", fmt.Sprintf("what followed: one of %v", verdicts))
	cmd.Flags().BoolVar(&f.Active, "active", false, "only those with a cap in force")
	cmd.Flags().IntVar(&f.Limit, "limit", 50, "at most so many; 0: all")
	cli.Completes(cmd, "verdict", verdicts...)
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.Parse(time.Now()); err != nil {
			return err
		}
		if f.Verdict != "" {
			if err := cli.OneOf("verdict", f.Verdict, verdicts...); err != nil {
				return err
			}
		}
		return run(cmd, f.Filter, *format)
	}
	return cmd
}

// TopCommand is `top`. run gets what was asked for and an output format, text or json.
func TopCommand(run func(*cobra.Command, incidents.TopQuery, string) error) *cobra.Command {
	var f Filter
	var by, group string
	orders := []string{incidents.ByIncidents, incidents.ByCapped, incidents.ByScore, incidents.ByExcess}
	groups := []string{incidents.GroupJob, incidents.GroupPod}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "who hurt a job most, or whom a job hurt",
		Long: `Ranks the antagonists of a victim, or the victims of an antagonist, or all
antagonists. EXCESS adds up how far above its normal CPI the victim was in each
incident, shared among those blamed for it: 1.00 is once its whole normal CPI.`,
		Args: cli.NoArgs,
	}
	FilterFlags(cmd, &f)
	cmd.Flags().IntVar(&f.Limit, "limit", 20, "at most so many; 0: all")
	cmd.Flags().StringVar(&by, "by", incidents.ByIncidents, fmt.Sprintf("what decides: one of %v", orders))
	cmd.Flags().StringVar(&group, "group", incidents.GroupJob, fmt.Sprintf("what a line is: one of %v", groups))
	cli.Completes(cmd, "by", orders...)
	cli.Completes(cmd, "group", groups...)
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := errors.Join(f.Parse(time.Now()), cli.OneOf("by", by, orders...),
			cli.OneOf("group", group, groups...)); err != nil {
			return err
		}
		return run(cmd, incidents.TopQuery{Victim: f.Victim, Antagonist: f.Antagonist, Since: f.Since,
			Until: f.Until, Limit: f.Limit, By: by, Group: group}, *format)
	}
	return cmd
}
