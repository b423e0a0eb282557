// Package top is `quietcore top`: a table of containers with what they use, made of two
// answers of the daemon. Compare and Frame.Lines make and draw the table, and neither
// ask nor wait; Options.Print and Options.Live do, the latter on a terminal.
package top
