package sqs

import (
	"crypto/md5" // the API's checksum, not a protection
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/llm-queue/llmq/local/cloud/sqs/internal/broker"
)

// bodyDigest is MD5OfMessageBody, which every SDK compares.
func bodyDigest(body string) string {
	sum := md5.Sum([]byte(body)) // see the import
	return hex.EncodeToString(sum[:])
}

// attributesDigest is MD5OfMessageAttributes; "" without attributes. Over the attributes in the order of their names, it takes name,
// type with its label, a byte that tells text (1) from binary (2), and value; all but the byte go with their length before them.
func attributesDigest(attributes map[string]broker.Attribute) string {
	if len(attributes) == 0 {
		return ""
	}
	var encoded []byte
	field := func(value string) {
		encoded = binary.BigEndian.AppendUint32(encoded, uint32(len(value))) // at most 1 MiB
		encoded = append(encoded, value...)
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		a := attributes[name]
		field(name)
		field(a.Type)
		if a.IsBinary() {
			encoded = append(encoded, 2)
			field(string(a.Binary))
			continue
		}
		encoded = append(encoded, 1)
		field(a.Text)
	}
	sum := md5.Sum(encoded) // see the import
	return hex.EncodeToString(sum[:])
}
