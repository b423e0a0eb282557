// Package deptest holds the shape of this codebase as tests: which package may
// import which, which packages are pure, where goroutines start, and how large
// structs, interfaces, functions, files and lines may be. It also follows the
// links of the documentation and checks the walks of docs/architecture.md.
//
// Each rule is a function from parsed files to findings, so that a test can give
// it a few lines of source that break it. What breaks a rule today is listed in
// one table, exceptions; an entry that is no longer needed fails the tests.
package deptest
