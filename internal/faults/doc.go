// Package faults is what tests do to a daemon: it takes events on a socket of its own,
// dies where it is told to, and orders writes naively. Only a binary that is built with
// the tag quietcore_faults has any of it.
package faults
