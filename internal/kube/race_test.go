//go:build race

package kube

const underRace = true
