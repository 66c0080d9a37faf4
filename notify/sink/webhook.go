package sink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"space-job/notify"
)

// webhook posts a message to an address.
type webhook struct {
	address string
	target  string // the address as it may be shown
	slack   bool
	limit   time.Duration
	now     func() time.Time
}

const (
	maxRedirects = 5
	maxAnswer    = 2 << 10 // bytes of an answer that are read
)

// client is shared: each attempt has a connection of its own, so nothing of a
// far end stays with a daemon at rest.
var client = &http.Client{
	Transport: &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: 64 << 10,
	},
	// A redirect that would lose the message (303, and by habit 301 and 302,
	// become a GET), leaves http or https for the other, or goes round in
	// circles is taken for the answer that it is.
	CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if r.Method != http.MethodPost || r.URL.Scheme != via[0].URL.Scheme || len(via) > maxRedirects {
			return http.ErrUseLastResponse
		}
		return nil
	},
}

func (h *webhook) Deliver(ctx context.Context, m notify.Message) error {
	err := h.post(ctx, m)
	if err == nil || ctx.Err() != nil {
		return err
	}
	var (
		permanent *notify.PermanentError
		retry     *notify.RetryError
	)
	switch {
	case errors.As(err, &permanent):
		permanent.Err = fmt.Errorf("%s: %w", h.target, permanent.Err)
	case errors.As(err, &retry):
		retry.Err = fmt.Errorf("%s: %w", h.target, retry.Err)
	default:
		err = fmt.Errorf("%s: %w", h.target, err)
	}
	return err
}

func (h *webhook) post(ctx context.Context, m notify.Message) error {
	body, err := h.body(m)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, h.limit)
	defer cancel()
	r, err := http.NewRequestWithContext(limited, http.MethodPost, h.address, bytes.NewReader(body))
	if err != nil {
		return &notify.PermanentError{Err: addressless(err)}
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "space-job")
	r.Header.Set("Idempotency-Key", m.Key)
	answer, err := client.Do(r)
	switch {
	case err == nil:
		defer answer.Body.Close()
		return h.judge(answer)
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		return fmt.Errorf("no answer within %s", seconds(h.limit))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the connection was closed before the answer")
	}
	return addressless(err)
}

// body is what is sent.
func (h *webhook) body(m notify.Message) ([]byte, error) {
	var v any = m
	if h.slack {
		v = struct {
			Text string `json:"text"`
		}{slackText.Replace(m.Text)}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// slackText hides the three characters that Slack gives a meaning: a log that
// says <!channel> must not call anybody.
var slackText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// judge says what an answer means.
func (h *webhook) judge(answer *http.Response) error {
	code := answer.StatusCode
	if code >= 200 && code <= 299 {
		return nil
	}
	said := strconv.Itoa(code)
	if text := http.StatusText(code); text != "" {
		said += " " + text
	}
	if code >= 300 && code <= 399 {
		said += ", which is not followed"
	}
	b, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	line, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	if line = oneLine(line, maxLine); line != "" {
		said += ": " + line
	}
	err := errors.New(said)
	if code >= 400 && code <= 499 && code != http.StatusRequestTimeout && code != http.StatusTooManyRequests {
		return &notify.PermanentError{Err: err}
	}
	if after := retryAfter(answer.Header, h.now()); after > 0 {
		return &notify.RetryError{After: after, Err: err}
	}
	return err
}

// retryAfter is how long an answer asks to wait: a number of seconds or a date,
// counted from the date of the answer where it has one, as clocks differ. 0 where
// it does not say; never more than a day.
func retryAfter(h http.Header, now time.Time) time.Duration {
	said := strings.TrimSpace(h.Get("Retry-After"))
	if said != "" && strings.Trim(said, "0123456789") == "" {
		n, err := strconv.Atoi(said)
		if err != nil || n > int(notify.MaxRetryAfter/time.Second) {
			return notify.MaxRetryAfter
		}
		return time.Duration(n) * time.Second
	}
	at, err := http.ParseTime(said)
	if err != nil {
		return 0
	}
	if sent, err := http.ParseTime(h.Get("Date")); err == nil {
		now = sent
	}
	return min(max(at.Sub(now), 0), notify.MaxRetryAfter)
}

// addressless takes the address off an error of package net/http: it may hold a
// secret.
func addressless(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
