package awscost

// Bill is what counts cost. Calls and Hours have nothing in common: receives that bring nothing, looks at queues, the governor and
// operators are paid by the hour, whether or not anybody calls.
type Bill struct {
	Calls []Item `json:"calls"`
	Hours []Item `json:"hours"`
}

// Item is a line of a bill.
type Item struct {
	Name  string  `json:"item"`
	Count float64 `json:"count"`
	Unit  string  `json:"unit"`
	USD   float64 `json:"usd"`
}

// Total is the sum of items in dollars.
func Total(items []Item) float64 {
	sum := 0.0
	for _, i := range items {
		sum += i.USD
	}
	return sum
}

// Bill prices what was counted. A span without a call has nothing but hours.
func (p Prices) Bill(c Counts) Bill {
	var b Bill
	calls, hours := &b.Calls, &b.Hours
	if c.Calls == 0 {
		calls = hours
	}
	add := func(to *[]Item, name string, count float64, unit string, usd float64) {
		*to = append(*to, Item{name, count, unit, count * usd})
	}
	add(calls, "API Gateway", c.APIRequests, "requests", p.usd("api_million")/million)
	for _, r := range roles() {
		to := calls
		if !r.ofCalls() {
			to = hours
		}
		invocations, gbSeconds := c.of(r)
		add(to, string(r), invocations, "invocations", p.usd("lambda_million")/million)
		add(to, string(r), gbSeconds, "GB-s", p.usd("lambda_gb_second"))
	}
	request := p.usd("sqs_million") / million
	add(calls, "SQS", c.messages(), "requests of 64 KB", request)
	add(calls, "SQS, fair", c.Grouped, "messages", p.usd("sqs_fair_million")/million)
	add(hours, "SQS, idle polls", c.EmptyReceives, "receives", request)
	add(hours, "SQS, looks", c.looks(), "requests", request)
	add(hours, "admin API", c.AdminRequests, "requests", p.usd("api_million")/million)
	add(calls, "state store", c.ECPU, "ECPU", p.usd("cache_ecpu_million")/million)
	add(calls, "S3", c.S3Writes, "writes", p.usd("s3_put_million")/million)
	add(calls, "S3", c.S3Reads, "reads", p.usd("s3_get_million")/million)
	add(calls, "logs", c.LogBytes, "bytes", p.usd("logs_gb")/bytesOfGB)
	add(calls, "replies to the internet", c.APIBytesOut, "bytes", p.usd("data_out_gb")/bytesOfGB)
	add(hours, "own metrics", c.MetricSeries, "series", p.usd("metric_month")*c.Seconds/month)
	b.Calls, b.Hours = paid(b.Calls), paid(b.Hours)
	return b
}

// paid leaves out what there was none of.
func paid(items []Item) []Item {
	out := []Item{} // an empty list, in JSON too
	for _, i := range items {
		if i.Count > 0 {
			out = append(out, i)
		}
	}
	return out
}

// Million is what a million calls like those counted cost; nothing where there was none.
func (p Prices) Million(c Counts) []Item {
	if c.Calls == 0 {
		return []Item{}
	}
	return p.Bill(c.times(million / c.Calls)).Calls
}
