package daemon

import (
	"context"
	"log/slog"

	"github.com/quietcore/quietcore/internal/page"
	"github.com/quietcore/quietcore/internal/page/site"
)

// pageServer shows the node to browsers. It is worth less than pods that start in
// their places: where it cannot be served, the log says so, and all else goes on.
type pageServer struct {
	options page.Options
	listen  string // empty: nowhere
	log     *slog.Logger
}

func (s *pageServer) Run(ctx context.Context) {
	if s.listen == "" {
		return
	}
	p, err := page.New(s.options)
	if err != nil {
		s.log.Error("the page is not served", "err", err)
		return
	}
	l, err := site.Listen(s.listen)
	if err != nil {
		s.log.Error("the page is not served", "listen", s.listen, "err", err)
		return
	}
	together(ctx, p.Run, func(ctx context.Context) {
		if err := site.Serve(ctx, l, p.Handler()); err != nil {
			s.log.Error("the page is served no longer", "err", err)
		}
	})
}

func (s *pageServer) Health() map[string]string { return nil }
