package show

import (
	"context"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/dayreport"
)

// Report prints what a time was like, and what enforcing would have changed.
func Report(ctx context.Context, o Options, q control.ReportQuery) error {
	r, err := o.Client.Report(ctx, q)
	if err != nil {
		return err
	}
	if o.Format == "json" {
		return cli.WriteJSON(o.To, r)
	}
	return dayreport.Write(o.To, r)
}
