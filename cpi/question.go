package cpi

// Question is a victim that may be disturbed now: its next window decides what follows. Of a list
// the most urgent comes first.
type Question struct {
	Victim string // container ID
	// Suspects are the containers, by ID, that an action or a test for the victim limits. Who watches
	// the victim watches them too, whether or not they are limited at the moment.
	Suspects []string
	// Test says that an experiment finds out whether the suspects disturb the victim.
	Test bool
}
