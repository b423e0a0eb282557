// Package upgrade knows the versions whose daemons one of this tree may replace, or be
// replaced by, and builds them from history. Its tests let them follow each other on a
// machine of plain files; the proof versions of e2e/proof does on a real one.
package upgrade
