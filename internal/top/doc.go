// Package top lays out what `quietcore top` shows: a table of containers with
// what they use, made of two answers of the daemon. It draws; it neither asks
// nor waits nor knows a terminal.
package top
