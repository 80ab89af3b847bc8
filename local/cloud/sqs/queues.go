package sqs

import (
	"encoding/base64"
	"net/url"
	"strings"

	"github.com/llm-queue/llmq/local/cloud/sqs/internal/broker"
)

// maxPage is the most queues of one answer, and what a caller gets that doesn't ask for pages.
const maxPage = 1000

// queueRef is the parameter that most operations name their queue by.
type queueRef struct {
	QueueURL *string `json:"QueueUrl"`
}

// queueURL returns the URL of a queue on the host the caller has asked.
func (s *Server) queueURL(c *call, name string) string { return c.base + "/" + s.account + "/" + name }

// queueName returns the name of the queue a URL ends in. The host is not looked at: one server has many names on one machine.
func (s *Server) queueName(ref queueRef) (string, error) {
	if ref.QueueURL == nil || *ref.QueueURL == "" {
		return "", missing("QueueUrl")
	}
	u, err := url.Parse(*ref.QueueURL)
	if err != nil {
		return "", badAddress()
	}
	account, name, ok := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if !ok || account == "" || name == "" || strings.Contains(name, "/") {
		return "", badAddress()
	}
	if account != s.account {
		return "", broker.Fail(broker.QueueDoesNotExist, "The specified queue does not exist.")
	}
	return name, nil
}

func badAddress() error {
	return broker.Fail(broker.InvalidAddress, "The QueueUrl is not valid for this endpoint: its path must be /<account>/<queue name>.")
}

func missing(parameter string) error {
	return broker.Fail(broker.MissingParameter, "The request must contain the parameter %s.", parameter)
}

// required returns the value of a parameter that must be there and not empty.
func required(parameter string, value *string) (string, error) {
	if value == nil || *value == "" {
		return "", missing(parameter)
	}
	return *value, nil
}

type createQueueInput struct {
	QueueName  *string           `json:"QueueName"`
	Attributes map[string]string `json:"Attributes"`
	Tags       map[string]string `json:"tags"` // so spelled in the model
}

type queueURLResult struct {
	QueueURL string `json:"QueueUrl"`
}

func (s *Server) createQueue(c *call, in *createQueueInput) (any, error) {
	name, err := required("QueueName", in.QueueName)
	if err != nil {
		return nil, err
	}
	if err := s.broker.CreateQueue(name, in.Attributes, in.Tags); err != nil {
		return nil, err
	}
	return queueURLResult{s.queueURL(c, name)}, nil
}

type getQueueURLInput struct {
	QueueName *string `json:"QueueName"`
	Owner     *string `json:"QueueOwnerAWSAccountId"`
}

func (s *Server) getQueueURL(c *call, in *getQueueURLInput) (any, error) {
	name, err := required("QueueName", in.QueueName)
	if err != nil {
		return nil, err
	}
	if in.Owner != nil && *in.Owner != s.account {
		return nil, broker.Fail(broker.QueueDoesNotExist, "The specified queue does not exist.")
	}
	if err := s.broker.CheckQueue(name); err != nil {
		return nil, err
	}
	return queueURLResult{s.queueURL(c, name)}, nil
}

func (s *Server) deleteQueue(_ *call, in *queueRef) (none, error) {
	name, err := s.queueName(*in)
	if err != nil {
		return none{}, err
	}
	return none{}, s.broker.DeleteQueue(name)
}

func (s *Server) purgeQueue(_ *call, in *queueRef) (none, error) {
	name, err := s.queueName(*in)
	if err != nil {
		return none{}, err
	}
	return none{}, s.broker.PurgeQueue(name)
}

type getQueueAttributesInput struct {
	queueRef
	AttributeNames []string `json:"AttributeNames"`
}

type attributesResult struct {
	Attributes map[string]string `json:"Attributes,omitempty"`
}

func (s *Server) getQueueAttributes(_ *call, in *getQueueAttributesInput) (any, error) {
	name, err := s.queueName(in.queueRef)
	if err != nil {
		return nil, err
	}
	attributes, err := s.broker.QueueAttributes(name, in.AttributeNames)
	if err != nil {
		return nil, err
	}
	return attributesResult{attributes}, nil
}

type setQueueAttributesInput struct {
	queueRef
	Attributes map[string]string `json:"Attributes"`
}

func (s *Server) setQueueAttributes(_ *call, in *setQueueAttributesInput) (none, error) {
	name, err := s.queueName(in.queueRef)
	if err != nil {
		return none{}, err
	}
	if len(in.Attributes) == 0 {
		return none{}, missing("Attributes")
	}
	return none{}, s.broker.SetQueueAttributes(name, in.Attributes)
}

type pageInput struct {
	MaxResults *int    `json:"MaxResults"`
	NextToken  *string `json:"NextToken"`
}

// bounds returns where a page begins and how long it may be, and whether the caller asked for pages: only then does it get a token
// for the next.
func (in pageInput) bounds() (after string, limit int, paged bool, err error) {
	limit = maxPage
	if in.MaxResults != nil {
		limit, paged = *in.MaxResults, true
		if limit < 1 || limit > maxPage {
			return "", 0, false, broker.Fail(broker.InvalidParameterValue,
				"Value %d for parameter MaxResults is invalid. Reason: Must be between 1 and 1000, if provided.", limit)
		}
	}
	if in.NextToken != nil {
		raw, err := base64.StdEncoding.DecodeString(*in.NextToken)
		if err != nil || len(raw) == 0 {
			return "", 0, false, fault(broker.InvalidParameterValue, "Invalid or expired next token.")
		}
		after = string(raw)
	}
	return after, limit, paged, nil
}

// pageOf returns the URLs and the token of one page.
func (s *Server) pageOf(c *call, names []string, next string, paged bool) (urls []string, token string) {
	for _, name := range names {
		urls = append(urls, s.queueURL(c, name))
	}
	if paged && next != "" {
		token = base64.StdEncoding.EncodeToString([]byte(next))
	}
	return urls, token
}

type listQueuesInput struct {
	pageInput
	Prefix string `json:"QueueNamePrefix"`
}

type listQueuesResult struct {
	QueueURLs []string `json:"QueueUrls,omitempty"`
	NextToken string   `json:"NextToken,omitempty"`
}

func (s *Server) listQueues(c *call, in *listQueuesInput) (any, error) {
	after, limit, paged, err := in.bounds()
	if err != nil {
		return nil, err
	}
	names, next, err := s.broker.ListQueues(in.Prefix, after, limit)
	if err != nil {
		return nil, err
	}
	urls, token := s.pageOf(c, names, next, paged)
	return listQueuesResult{urls, token}, nil
}

type listSourcesInput struct {
	queueRef
	pageInput
}

type listSourcesResult struct {
	QueueURLs []string `json:"queueUrls"` // so spelled in the model, and always there
	NextToken string   `json:"NextToken,omitempty"`
}

func (s *Server) listDeadLetterSourceQueues(c *call, in *listSourcesInput) (any, error) {
	name, err := s.queueName(in.queueRef)
	if err != nil {
		return nil, err
	}
	after, limit, paged, err := in.bounds()
	if err != nil {
		return nil, err
	}
	names, next, err := s.broker.DeadLetterSources(name, after, limit)
	if err != nil {
		return nil, err
	}
	urls, token := s.pageOf(c, names, next, paged)
	return listSourcesResult{urls, token}, nil
}

type tagsResult struct {
	Tags map[string]string `json:"Tags,omitempty"`
}

func (s *Server) listQueueTags(_ *call, in *queueRef) (any, error) {
	name, err := s.queueName(*in)
	if err != nil {
		return nil, err
	}
	tags, err := s.broker.Tags(name)
	if err != nil {
		return nil, err
	}
	return tagsResult{tags}, nil
}

type tagQueueInput struct {
	queueRef
	Tags map[string]string `json:"Tags"`
}

func (s *Server) tagQueue(_ *call, in *tagQueueInput) (none, error) {
	name, err := s.queueName(in.queueRef)
	if err != nil {
		return none{}, err
	}
	if len(in.Tags) == 0 {
		return none{}, missing("Tags")
	}
	return none{}, s.broker.TagQueue(name, in.Tags)
}

type untagQueueInput struct {
	queueRef
	TagKeys []string `json:"TagKeys"`
}

func (s *Server) untagQueue(_ *call, in *untagQueueInput) (none, error) {
	name, err := s.queueName(in.queueRef)
	if err != nil {
		return none{}, err
	}
	if len(in.TagKeys) == 0 {
		return none{}, missing("TagKeys")
	}
	return none{}, s.broker.UntagQueue(name, in.TagKeys)
}

// refusePermissions answers AddPermission and RemovePermission: there are no other accounts here to give permissions to.
func (s *Server) refusePermissions(*call, *queueRef) (none, error) {
	return none{}, fault(broker.UnsupportedOperation, "Queue permissions are not supported by this local SQS server.")
}
