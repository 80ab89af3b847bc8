package stack

import (
	"regexp"
	"strings"
)

// place is where a Bedrock model is called. Its parts may be CDK tokens.
type place struct{ partition, region, account string }

// access is what calling one Bedrock model takes.
type access struct {
	resource string // ARN of what is called
	through  string // ARN, with wildcards, of the models that it calls in turn, which may be called by no other way; "" is none
}

// geography begins the id of a cross-region inference profile. The list is Bedrock's;
// an id that begins otherwise is a foundation model's, vendor first.
var geography = regexp.MustCompile(`^(global|us|us-gov|eu|apac|jp|au|ca|sa|me|af|il|in|mx|uk)\.`)

// bedrockAccess tells what a configured model id stands for: a foundation model, a
// cross-region inference profile, or an ARN of anything that can be called.
//
// A profile calls its model in regions that Bedrock chooses and may add to, so the
// region is the one part that can't be named; the profile is the condition instead.
// An application profile doesn't tell its model either.
func bedrockAccess(id string, at place) access {
	if strings.HasPrefix(id, "arn:") {
		return accessByARN(id)
	}
	if model := geography.ReplaceAllString(id, ""); model != id {
		return access{
			resource: strings.Join([]string{"arn", at.partition, "bedrock", at.region, at.account, "inference-profile/" + id}, ":"),
			through:  foundation(at.partition, "*", model),
		}
	}
	return access{resource: foundation(at.partition, at.region, id)}
}

func accessByARN(arn string) access {
	a := access{resource: arn}
	parts := strings.SplitN(arn, ":", 6) // arn:partition:bedrock:region:account:kind/id
	if len(parts) < 6 {
		return a
	}
	switch kind, id, _ := strings.Cut(parts[5], "/"); kind {
	case "inference-profile":
		a.through = foundation(parts[1], "*", geography.ReplaceAllString(id, ""))
	case "application-inference-profile":
		a.through = foundation(parts[1], "*", "*")
	}
	return a
}

// foundation is the ARN of a foundation model, which belongs to no account.
func foundation(partition, region, id string) string {
	return strings.Join([]string{"arn", partition, "bedrock", region, "", "foundation-model/" + id}, ":")
}
