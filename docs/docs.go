// Package docs is those pages of the documentation that the program prints too, so that
// the two cannot differ:
//
//	docs.Metrics // the catalogue of metrics.md
package docs

import _ "embed"

// Metrics is metrics.md.
//
//go:embed metrics.md
var Metrics string
