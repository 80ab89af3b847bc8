package cassette

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// value is JSON that can be written in many ways.
type value struct {
	scalar []string // spellings of one scalar
	names  []string // of an object, in some order; nil for an array
	items  []value
	object bool
}

func scalars() *rapid.Generator[value] {
	return rapid.Custom(func(t *rapid.T) value {
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			return value{scalar: []string{rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "literal")}}
		case 1:
			n := rapid.Int64Range(-1_000_000, 1_000_000).Draw(t, "n")
			s := strconv.FormatInt(n, 10)
			if n == 0 {
				return value{scalar: []string{"0", "-0", "0.0", "0e0", "-0.00E+7"}}
			}
			return value{scalar: []string{s, s + ".0", s + ".000", s + "e0", s + "E+0", s + "0e-1", s + "00.0e-2"}}
		default:
			s := rapid.StringMatching(`[a-zé☕ "\\]{0,6}`).Draw(t, "s")
			long := `"`
			for _, c := range s {
				long += `\u` + strings.Repeat("0", 4-len(strconv.FormatInt(int64(c), 16))) + strconv.FormatInt(int64(c), 16)
			}
			return value{scalar: []string{`"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`, long + `"`}}
		}
	})
}

func values(depth int) *rapid.Generator[value] {
	return rapid.Custom(func(t *rapid.T) value {
		if depth == 0 || rapid.Bool().Draw(t, "leaf") {
			return scalars().Draw(t, "scalar")
		}
		return container(depth).Draw(t, "container")
	})
}

func container(depth int) *rapid.Generator[value] {
	return rapid.Custom(func(t *rapid.T) value {
		v := value{items: rapid.SliceOfN(values(depth-1), 0, 4).Draw(t, "items"), object: rapid.Bool().Draw(t, "object")}
		for i := range v.items {
			v.names = append(v.names, strconv.Itoa(i)+rapid.StringMatching(`[a-b"]{0,2}`).Draw(t, "name"))
		}
		return v
	})
}

// write spells a value as chance has it.
func (v value) write(b *bytes.Buffer, r *rand.Rand) {
	space := func() { b.WriteString([]string{"", " ", "\n\t", "\r\n  "}[r.IntN(4)]) }
	space()
	defer space()
	if v.scalar != nil {
		b.WriteString(v.scalar[r.IntN(len(v.scalar))])
		return
	}
	if !v.object {
		b.WriteByte('[')
		for i, item := range v.items {
			if i > 0 {
				b.WriteByte(',')
			}
			item.write(b, r)
		}
		b.WriteByte(']')
		return
	}
	b.WriteByte('{')
	for n, i := range r.Perm(len(v.items)) {
		if n > 0 {
			b.WriteByte(',')
		}
		space()
		b.WriteString(strconv.Quote(v.names[i]))
		space()
		b.WriteByte(':')
		v.items[i].write(b, r)
	}
	b.WriteByte('}')
}

func canonical(t *rapid.T, v value, seed uint64) string {
	var b bytes.Buffer
	v.write(&b, rand.New(rand.NewPCG(seed, 1)))
	n, ok := parse(b.Bytes())
	if !ok {
		t.Fatalf("not read: %s", b.String())
	}
	return string(n.appendTo(nil))
}

// However a body is spelled, its canonical form is one.
func TestCanonical_SpellingDoesNotCount(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := container(4).Draw(t, "value")
		if a, b := canonical(t, v, rapid.Uint64().Draw(t, "a")), canonical(t, v, rapid.Uint64().Draw(t, "b")); a != b {
			t.Fatalf("%s\n%s", a, b)
		}
	})
}

// Its twin: what means something else has another form, and the difference is found.
func TestCanonical_MeaningCounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := container(4).Draw(t, "value")
		other := v
		other.items = append(append([]value{}, v.items...), scalars().Draw(t, "more"))
		other.names = append(append([]string{}, v.names...), "more")
		a, b := canonical(t, v, 1), canonical(t, other, 1)
		if a == b {
			t.Fatalf("both are %s", a)
		}
		na, _ := parse([]byte(spell(v)))
		nb, _ := parse([]byte(spell(other)))
		if first, count := difference(na, nb); count == 0 || first == "" {
			t.Fatalf("no difference between %s and %s", a, b)
		}
		if _, count := difference(na, na); count != 0 {
			t.Fatalf("%s differs from itself", a)
		}
	})
}

func spell(v value) string {
	var b bytes.Buffer
	v.write(&b, rand.New(rand.NewPCG(1, 1)))
	return b.String()
}

func TestNumber_IsItsExactValue(t *testing.T) {
	t.Parallel()
	for _, same := range [][]string{
		{"0", "0.0", "-0", "0e5", "-0.00E-9"}, {"100", "1e2", "1E+2", "100.000", "10e1", "0.1e3"}, {"-12.5", "-125e-1", "-1.25e1"}, {"0.001", "1e-3", "0.0010"},
	} {
		for _, s := range same {
			if number(s) != number(same[0]) {
				t.Errorf("%s is %s, %s is %s", s, number(s), same[0], number(same[0]))
			}
		}
	}
	seen := map[string]string{}
	for _, s := range []string{"0", "1", "-1", "10", "0.1", "9007199254740992", "9007199254740993", "0.1000000000000000055", "1e400", "1e401", "1e99999999999", "1e99999999998"} {
		if other, ok := seen[number(s)]; ok {
			t.Errorf("%s and %s are one", s, other)
		}
		seen[number(s)] = s
	}
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.50,"x",null,true,{}]}`, `[]`, `{"a":1,"a":2}`, "[\"\\ud83d\"]", "[\"\xff\"]", `[1e999999999999]`, strings.Repeat("[", 2000), `{"a":{"b":-0.0}} `, `[0]x`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		n, ok := parse(body)
		if !ok {
			return
		}
		form := n.appendTo(nil)
		if _, count := difference(n, n); count != 0 {
			t.Errorf("%q differs from itself", body)
		}
		again, ok := parse(body)
		if !ok || !bytes.Equal(form, again.appendTo(nil)) {
			t.Errorf("%q: two forms", body)
		}
	})
}

// A file that can be read can be written, and says the same then.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"cassette":1,"request":{"method":"POST","url":"https://h/x?a=b","header":{"Accept":["x"]},"json":{"a":[1.0,"é"]}},"response":{"status":200,"wait_ms":3,"length":3,"chunks":[{"after_ms":0,"text":"yes"}],"end":"complete"}}`))
	f.Add([]byte(`{"cassette":1,"request":{"method":"GET","url":"http://127.0.0.1:1/"},"response":{"status":500,"wait_ms":0,"chunks":[{"after_ms":9,"base64":"AP8="}],"end":"broken"}}`))
	f.Add([]byte(`{"cassette":1,"request":{"method":"PUT","url":"http://h","text":"x\u0000"},"response":{"status":299,"wait_ms":0,"chunks":[],"end":"closed"}}`))
	f.Add([]byte(`{"cassette":2}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decode(data)
		if err != nil {
			return
		}
		text, err := encode(r)
		if err != nil {
			t.Fatalf("%q can't be written: %v", data, err)
		}
		back, err := decode(text)
		if err != nil {
			t.Fatalf("%q can't be read again: %v", text, err)
		}
		var tape Tape
		if tape.keyOf(r) != tape.keyOf(back) || !bytes.Equal(r.response.joined(), back.response.joined()) || len(r.response.chunks) != len(back.response.chunks) ||
			r.response.end != back.response.end || r.response.length != back.response.length {
			t.Errorf("%q became %q", data, text)
		}
	})
}

func FuzzScan(f *testing.F) {
	f.Add([]byte(`{"a":"\u0041KIA%41"}`), "12345678")
	f.Add([]byte(`\`), "\\u0041\\u")
	f.Add([]byte(`%4`), "%%%%%%%%")
	f.Fuzz(func(t *testing.T, b []byte, secret string) {
		_ = Scan(b, secret) // it must not panic
		if len(secret) >= MinSecretBytes && Scan(append(b, secret...), secret) == nil {
			t.Errorf("%q was not found at the end of %q", secret, b)
		}
	})
}
