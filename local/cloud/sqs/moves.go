package sqs

type startMoveInput struct {
	SourceARN      *string `json:"SourceArn"`
	DestinationARN string  `json:"DestinationArn"`
	PerSecond      *int    `json:"MaxNumberOfMessagesPerSecond"`
}

type startMoveResult struct {
	TaskHandle string `json:"TaskHandle"`
}

func (s *Server) startMessageMoveTask(_ *call, in *startMoveInput) (any, error) {
	source, err := required("SourceArn", in.SourceARN)
	if err != nil {
		return nil, err
	}
	handle, err := s.broker.StartMove(source, in.DestinationARN, in.PerSecond)
	if err != nil {
		return nil, err
	}
	return startMoveResult{handle}, nil
}

type listMovesInput struct {
	SourceARN  *string `json:"SourceArn"`
	MaxResults *int    `json:"MaxResults"`
}

type listedMove struct {
	TaskHandle     string `json:"TaskHandle,omitempty"`
	Status         string `json:"Status"`
	SourceARN      string `json:"SourceArn"`
	DestinationARN string `json:"DestinationArn,omitempty"`
	PerSecond      int    `json:"MaxNumberOfMessagesPerSecond,omitzero"`
	Moved          int    `json:"ApproximateNumberOfMessagesMoved"`
	ToMove         int    `json:"ApproximateNumberOfMessagesToMove"`
	FailureReason  string `json:"FailureReason,omitempty"`
	Started        int64  `json:"StartedTimestamp"` // milliseconds since 1970
}

type listMovesResult struct {
	Results []listedMove `json:"Results,omitempty"`
}

func (s *Server) listMessageMoveTasks(_ *call, in *listMovesInput) (any, error) {
	source, err := required("SourceArn", in.SourceARN)
	if err != nil {
		return nil, err
	}
	limit := 1
	if in.MaxResults != nil {
		limit = *in.MaxResults
	}
	moves, err := s.broker.Moves(source, limit)
	if err != nil {
		return nil, err
	}
	var result listMovesResult
	for _, m := range moves {
		result.Results = append(result.Results, listedMove{
			TaskHandle: m.Handle, Status: m.Status, SourceARN: m.SourceARN, DestinationARN: m.DestinationARN, PerSecond: m.PerSecond,
			Moved: m.Moved, ToMove: m.ToMove, FailureReason: m.Failure, Started: m.StartedAt.UnixMilli(),
		})
	}
	return result, nil
}

type cancelMoveInput struct {
	TaskHandle *string `json:"TaskHandle"`
}

type cancelMoveResult struct {
	Moved int `json:"ApproximateNumberOfMessagesMoved"`
}

func (s *Server) cancelMessageMoveTask(_ *call, in *cancelMoveInput) (any, error) {
	handle, err := required("TaskHandle", in.TaskHandle)
	if err != nil {
		return nil, err
	}
	moved, err := s.broker.CancelMove(handle)
	if err != nil {
		return nil, err
	}
	return cancelMoveResult{moved}, nil
}
