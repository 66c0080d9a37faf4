package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"space-job/cmd/internal/api"
)

// maxArguments is the most bytes of one call's arguments that are looked at.
const maxArguments = 1 << 20

// decode reads the arguments of a call. Errors name the argument.
func decode(raw json.RawMessage, into any) error {
	if len(raw) > maxArguments {
		return &api.Error{Code: api.LimitExceeded, Message: fmt.Sprintf("arguments: %d bytes are too many: at most %d", len(raw), maxArguments)}
	}
	if !utf8.Valid(raw) { // it would be decoded as something else
		return invalid("arguments", "hold bytes that are not UTF-8")
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = json.RawMessage("{}")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		_, err = d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		err = errors.New("something follows them")
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		field := wrong.Field
		if field == "" {
			field = "arguments"
		}
		return invalid(field, "a "+wrong.Value+" is not what it takes: "+kindOf(wrong))
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		name = strings.Trim(name, `"`)
		if top := given(raw); !has(top, name) && has(top, "until") {
			return &api.Error{Code: api.InvalidArgument, Message: "until." + name + ": is no condition",
				Hint: "until takes file, port (host), command, pr_checks, job, or log with match"}
		}
		return invalid(name, "is no argument of this tool")
	}
	return invalid("arguments", strings.TrimPrefix(err.Error(), "json: "))
}

func has(set map[string]bool, name string) bool {
	_, there := set[name]
	return there
}

func kindOf(e *json.UnmarshalTypeError) string {
	switch k := e.Type.Kind().String(); k {
	case "string":
		return "it is a string"
	case "bool":
		return "it is true or false"
	case "slice":
		return "it is a list of strings"
	case "map", "struct":
		return "it is an object"
	case "float64":
		return "it is a number"
	default:
		return "it is a whole number"
	}
}

func invalid(field, why string) *api.Error {
	return &api.Error{Code: api.InvalidArgument, Message: field + ": " + why}
}

// words is a list of strings, or one alone.
type words []string

func (w *words) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var one string
		if err := json.Unmarshal(b, &one); err != nil {
			return err
		}
		*w = words{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(w))
}

// only refuses arguments that an action does not take.
func only(action string, given map[string]bool, takes ...string) error {
	var wrong []string
	for name, set := range given {
		if set && !slices.Contains(takes, name) {
			wrong = append(wrong, name)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	return &api.Error{Code: api.InvalidArgument, Message: wrong[0] + ": is no argument of action " + action,
		Hint: action + " takes " + strings.Join(takes, ", ")}
}

// unknownAction says which there are.
func unknownAction(given string, actions []string) error {
	e := &api.Error{Code: api.InvalidArgument, Message: "action: " + api.Quote(given) + " is none", Hint: "it is one of " + strings.Join(actions, ", ")}
	if given == "" {
		e.Message = "action: is missing"
	}
	return e
}

// seconds is a time limit as a call gives it.
func seconds(s *float64) (time.Duration, error) {
	if s == nil {
		return 0, nil
	}
	if !(*s > 0) || *s > math.MaxInt64/float64(time.Second) {
		return 0, invalid("timeout", fmt.Sprintf("%v is no number of seconds above zero", *s))
	}
	return time.Duration(*s * float64(time.Second)), nil
}

// given are the names of the arguments in a call.
func given(raw json.RawMessage) map[string]bool {
	var all map[string]json.RawMessage
	_ = json.Unmarshal(raw, &all) // it was decoded before
	out := make(map[string]bool, len(all))
	for name, v := range all {
		out[name] = name != "action" && name != "space" && string(v) != "null"
	}
	return out
}
