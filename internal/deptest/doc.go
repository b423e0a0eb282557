// Package deptest holds the shape of this codebase as tests: which packages are
// pure, who may import whom, and how wide an interface may be.
package deptest
