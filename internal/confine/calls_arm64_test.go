package confine

var neverCalledHere = map[string]uintptr{}
