package provider

// Load is what an attempt asks of a budget of tokens, as far as its body tells before it is sent.
type Load struct {
	InputChars int  // characters of text in the input; media count for nothing, see [TextChars]
	MaxOutput  int  // the most output that is sent, of all choices together; 0: none is sent
	NoOutput   bool // the op has no output
}

// Measurer is a provider that knows its wire's bodies well enough to tell what they ask for.
type Measurer interface {
	// Measure reads what [Provider.Call] would send for req, what it puts in by itself
	// included. It makes no exchange, and of a body that Call refuses it tells what it understood.
	Measure(req Request) Load
}

// Usage is what a provider says a call has used, as its own limits of tokens count it.
type Usage struct {
	Input      int // tokens of input; without those read from a cache where the provider gives these away
	CacheWrite int // tokens of input written to a cache, where they are told apart from Input
	Output     int
}

// MostTokens is the most that one call is believed to have used: far above what any model takes, so that
// what is beyond is a server's nonsense, which must not empty a minute's budget.
const MostTokens = 100_000_000

// Told is u, or nil where it tells nothing or nothing that can be true: the call is then charged what it reserved.
func (u Usage) Told() *Usage {
	if u == (Usage{}) || max(u.Input, u.CacheWrite, u.Output) > MostTokens {
		return nil
	}
	return &u
}

// MostChoices bounds the factor by which the choices of one call multiply its output.
const MostChoices = 128

// Choices is the most output of n choices of most tokens each. What makes no sense counts as
// one choice; the provider will say what is wrong with it.
func Choices(most, n int) int {
	return min(max(most, 0), 1<<40) * min(max(n, 1), MostChoices)
}

// TextChars counts the characters of the strings in a JSON value, but of members that skip
// names: an id, a role or an image in base64 is no text. Keys, numbers and everything else count for nothing. An
// escape is one character, and so is each code point in UTF-8.
//
// One pass without a copy, for bodies of 20 MB are legal. The value's syntax was checked before;
// of one that is broken off it counts what is there.
func TextChars(value []byte, skip map[string]bool) int {
	chars := 0
	var name []byte // of the member whose value is next; nil in an array
	for i := 0; i < len(value); i++ {
		switch value[i] {
		case '"':
			end, n := text(value, i+1)
			if isName(value, end+1) {
				name = value[i+1 : end]
			} else {
				if !skip[string(name)] {
					chars += n
				}
				name = nil
			}
			i = end
		case '{', '[', ',':
			name = nil
		}
	}
	return chars
}

// text finds the quote that ends the string whose first character is at i, and counts what is before it.
func text(value []byte, i int) (end, chars int) {
	for ; i < len(value); i++ {
		switch c := value[i]; {
		case c == '"':
			return i, chars
		case c == '\\':
			chars++
			if i++; i < len(value) && value[i] == 'u' {
				i += 4
			}
		case c < 0x80 || c >= 0xc0: // not the rest of a code point
			chars++
		}
	}
	return len(value), chars
}

// isName reports whether a colon follows at i, as after a member's name.
func isName(value []byte, i int) bool {
	for ; i < len(value); i++ {
		switch value[i] {
		case ' ', '\t', '\n', '\r':
		default:
			return value[i] == ':'
		}
	}
	return false
}

// Numbers counts the numbers in a JSON array of numbers, or of arrays of them.
func Numbers(value []byte) int {
	n, in := 0, false
	for _, c := range value {
		digit := c >= '0' && c <= '9' || c == '-' || c == '.' || c == '+' || c == 'e' || c == 'E'
		if digit && !in {
			n++
		}
		in = digit
	}
	return n
}
