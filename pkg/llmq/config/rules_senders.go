package config

import "regexp"

// uniqueID is how IAM numbers roles and users. What it numbers otherwise sends nothing.
var uniqueID = regexp.MustCompile(`^(AROA|AIDA)[A-Z0-9]{12,124}$`)

// producers checks that each sender is one, and has one tenant (SECURITY-DESIGN MS1, MS2).
func (c *checker) producers() {
	names, owners := map[string]int{}, map[string]string{} // owners of sender ids
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
		if !c.aws() {
			continue
		}
		if p.SenderID != "" && c.ok(path+".sender_id") && !uniqueID.MatchString(p.SenderID) {
			c.fault(path+".sender_id", "must be the unique id of a role or user, AROA… or AIDA…, as `aws iam get-role` tells it, not its name")
		}
		if p.RoleARN == "" {
			c.fault(path+".role_arn", "is missing: on aws the queues' policies let nobody send who is not named; give arn:aws:iam::ACCOUNT:role/NAME")
		}
	}
}
