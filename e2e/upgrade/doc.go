// Package upgrade tests that a daemon of this version can replace one of an older
// version, and be replaced by it. The file versions names the commits of the older ones.
package upgrade
