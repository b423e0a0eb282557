package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func completionShells() []string { return []string{"bash", "zsh", "fish", "powershell"} }

// CompletionCommand is cobra's command completion, except that a misspelt shell is an
// error; name is the program's.
func CompletionCommand(name string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "completion SHELL",
		Short: "print a shell's completion script",
		Long: "Prints the script that completes commands, flags and their values. SHELL is " +
			strings.Join(completionShells(), ", ") + ".",
		Example: strings.ReplaceAll(`  source <(NAME completion bash)
  NAME completion zsh > "${fpath[1]}/_NAME"
  NAME completion fish > ~/.config/fish/completions/NAME.fish`, "NAME", name),
		ValidArgs:             completionShells(),
		DisableFlagsInUseLine: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(completionShells(), args[0]) {
				return Usage("%s takes one of %v", cmd.CommandPath(), completionShells())
			}
			return nil
		},
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		root, out := cmd.Root(), cmd.OutOrStdout()
		switch args[0] {
		case "bash":
			return root.GenBashCompletionV2(out, true)
		case "zsh":
			return root.GenZshCompletion(out)
		case "fish":
			return root.GenFishCompletion(out, true)
		case "powershell":
			return root.GenPowerShellCompletionWithDesc(out)
		}
		return fmt.Errorf("no completion for %s", args[0])
	}
	return cmd
}
