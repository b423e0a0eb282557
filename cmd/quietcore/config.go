package main

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/topodoc"
	"github.com/quietcore/quietcore/policy"
)

func newConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "check, print and compare configuration files",
		Long:  "Checks, prints and compares configuration files of the daemon; docs/configuration.md lists every key.",
	}
	return cli.Group(cmd, newConfigValidate(), newConfigPrint(), newConfigDiff())
}

func newConfigValidate() *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use:   "validate FILE",
		Short: "report every mistake in a file at once",
		Long: `Reports every mistake in a file (- is standard input) at once. With --sysfs it also says whether
that machine can have this configuration: whether its CPUs exist and leave the shared pool its floor.`,
		Example: "  quietcore config validate /etc/quietcore/config.yaml\n  quietcore config validate --sysfs /sys " +
			"config.yaml",
		Args: cli.OneArg("the file"),
	}
	cmd.Flags().StringVar(&root, "sysfs", "", "a /sys tree, live or copied, of the machine that it is for")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := config.Read(args[0], cmd.InOrStdin())
		if err != nil {
			return cli.UsageError{Err: err}
		}
		cli.Warn(cmd.ErrOrStderr(), slices.Concat(c.Reclaim.Former(), c.CPI.Unused()))
		if root != "" {
			t, warnings, err := topodoc.Doc{Sysfs: root}.Build(topodoc.Open)
			cli.Warn(cmd.ErrOrStderr(), warnings)
			if err != nil {
				return cli.UsageError{Err: err}
			}
			if _, err := policy.New(t, c.Policy()); err != nil {
				return cli.Usage("configuration %s: %w", args[0], err)
			}
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is valid\n", args[0])
		return err
	}
	return cmd
}

func newConfigPrint() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "print [FILE]",
		Short: "print the configuration that a file means, defaults included",
		Long:  "Prints the whole configuration that a file (- is standard input) means, or the defaults without one.",
		Args:  cli.AtMostOneArg("the file"),
	}
	format := cli.Output(cmd, "yaml", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := ""
		if len(args) == 1 {
			name = args[0]
		}
		c, err := config.Read(name, cmd.InOrStdin())
		if err != nil {
			return cli.UsageError{Err: err}
		}
		if *format == "json" {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(c)
		}
		text, err := c.YAML()
		if err != nil {
			return err
		}
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	return cmd
}
