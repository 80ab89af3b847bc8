package config

import "regexp"

// uniqueID is how IAM numbers roles and users. What it numbers otherwise sends nothing.
var uniqueID = regexp.MustCompile(`^(AROA|AIDA)[A-Z0-9]{12,124}$`)

// replies checks where a producer's calls' ends may be told: by aliases that its tenant has once, in a bucket that is there, and
// on no queue of ours, where a reply would come back as a message (SECURITY-DESIGN MS5).
func (c *checker) replies(path string, p Producer, aliases map[string]string) {
	for i, r := range p.replies() {
		at := listPath(path, i)
		key := p.Tenant + " " + r.Alias
		if first, taken := aliases[key]; taken {
			c.fault(at, "the alias %q of tenant %s is %s already", r.Alias, p.Tenant, first)
		} else {
			aliases[key] = at
		}
		if r.Queue == "" && c.cfg.Storage.Bucket == "" && !c.aws() {
			c.fault(at, "s3 needs storage.bucket")
		}
		for _, q := range c.cfg.QueueNames() {
			if r.Queue == q || r.Queue == q.DLQ() {
				c.fault(at, "%s is a queue of llmq's own: a reply would come back as a message", r.Queue)
			}
		}
	}
}

// programNameMost is how long a program's name and its environment's may be together: a user of ElastiCache has 40 characters.
const programNameMost = 40 - len("llmq--prog-")

// producers checks that each sender is one, and has one tenant (SECURITY-DESIGN MS1, MS2).
func (c *checker) producers() {
	names, owners := map[string]int{}, map[string]string{} // owners of sender ids
	aliases := map[string]string{}                         // of replies: where an alias of a tenant stands
	claim := func(path, id string) {
		if owner, taken := owners[id]; taken {
			c.fault(path, "is %s already; who sends is one of ours, a worker or a producer of one tenant", owner)
		} else if id != "" {
			owners[id] = path
		}
	}
	for i, id := range c.cfg.Queues.SenderIDs {
		claim(listPath("queues.sender_ids", i), id)
	}
	for i, id := range c.cfg.Queues.WorkerIDs {
		claim(listPath("queues.worker_ids", i), id)
	}
	for i, p := range c.cfg.Producers {
		path := producerPath(i)
		if first, taken := names[p.Name]; taken && p.Name != "" {
			c.fault(path+".name", "%q is the name of %s already", p.Name, producerPath(first))
		} else {
			names[p.Name] = i
		}
		claim(path+".sender_id", p.SenderID)
		c.replies(path+".replies", p, aliases)
		if !c.aws() {
			continue
		}
		if p.SenderID != "" && c.ok(path+".sender_id") && !uniqueID.MatchString(p.SenderID) {
			c.fault(path+".sender_id", "must be the unique id of a role or user, AROA… or AIDA…, as `aws iam get-role` tells it, not its name")
		}
		if n := len(c.cfg.Env) + len(p.Name); p.Program && n > programNameMost {
			c.fault(path+".program", "makes the user llmq-%s-prog-%s of the cache, whose name may have 40 characters; shorten the producer's name by %d", c.cfg.Env, p.Name, n-programNameMost)
		}
		if p.Program && c.cfg.Valkey.Network == "vpc" {
			c.fault(path+".program", "needs valkey.network: public; in a VPC nobody but llmq's functions reaches the cache")
		}
		if p.RoleARN == "" {
			c.fault(path+".role_arn", "is missing: on aws the queues' policies let nobody send who is not named; give arn:aws:iam::ACCOUNT:role/NAME")
		}
	}
}
