package broker

import "maps"

// The bounds of a queue's tags.
const (
	maxTags     = 50
	maxTagKey   = 128 // bytes
	maxTagValue = 256 // bytes
)

// Tags returns a queue's tags.
func (b *Broker) Tags(name string) (map[string]string, error) {
	q, err := b.open(name)
	if err != nil {
		return nil, err
	}
	defer b.leave(q)
	return maps.Clone(q.tags), nil
}

// TagQueue sets tags, over those of the same key.
func (b *Broker) TagQueue(name string, tags map[string]string) error {
	if err := checkTags(tags); err != nil {
		return err
	}
	q, err := b.open(name)
	if err != nil {
		return err
	}
	defer b.leave(q)
	all := maps.Clone(q.tags)
	maps.Copy(all, tags)
	if err := checkTags(all); err != nil {
		return err
	}
	q.tags = all
	return nil
}

// UntagQueue removes the tags of those keys; an unknown key is no error.
func (b *Broker) UntagQueue(name string, keys []string) error {
	q, err := b.open(name)
	if err != nil {
		return err
	}
	defer b.leave(q)
	for _, key := range keys {
		delete(q.tags, key)
	}
	return nil
}

func checkTags(tags map[string]string) error {
	if len(tags) > maxTags {
		return Fail(InvalidParameterValue, "Too many tags added for queue: a queue can have at most %d.", maxTags)
	}
	for key, value := range tags {
		if key == "" || len(key) > maxTagKey {
			return Fail(InvalidParameterValue, "Tag keys must be between 1 and %d characters in length.", maxTagKey)
		}
		if len(value) > maxTagValue {
			return Fail(InvalidParameterValue, "Tag values must be between 0 and %d characters in length.", maxTagValue)
		}
	}
	return nil
}
