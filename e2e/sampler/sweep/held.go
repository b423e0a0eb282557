package sweep

// Held is what a process holds.
type Held struct {
	Descriptors int            `json:"descriptors"`
	Entries     map[string]int `json:"entries"` // of its BPF hash maps, by their names
}
