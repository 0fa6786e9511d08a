// Stands between recordmill and a store: counts requests and the bytes of their answers, delays them,
// and has some of them fail.
//
//	fault_proxy -listen 127.0.0.1:0 -upstream http://127.0.0.1:9000
//
// The first line printed is the address. Under /__proxy one may PUT settings and GET counts, as JSON.
// Which request fails follows from its path and from how often it was made, never from chance.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Settings say what happens to the requests whose "METHOD /path" they match.
type Settings struct {
	Match     string   `json:"match"`      // a regular expression; "" matches all
	LatencyMS int      `json:"latency_ms"` // before each of them
	Percent   int      `json:"percent"`    // of them that fail
	Faults    []string `json:"faults"`     // a status, "reset", "cut" (mid-body) or "stall" (2 s), in turn
	Salt      string   `json:"salt"`       // another salt, other failures
}

type proxy struct {
	mutex    sync.Mutex
	settings Settings
	match    *regexp.Regexp
	counts   map[string]int // "METHOD /path" to how often it was requested
	requests []string       // each "METHOD /path", in the order in which they arrived
	faults   map[string]int // fault to how often it was injected
	bytes    map[string]int // "METHOD /path" to the bytes of all answers
	upstream *httputil.ReverseProxy
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/__proxy" {
		p.control(w, r)
		return
	}
	if strings.HasPrefix(r.URL.Path, "/batch/") {
		nameParts(r)
	}
	latency, fault := p.plan(r.Method + " " + r.URL.Path)
	if r.Header.Get("Authorization") == "Bearer emulator" {
		toJSON(r)
	}
	time.Sleep(latency)
	switch fault {
	case "":
		p.upstream.ServeHTTP(w, r)
	case "stall":
		time.Sleep(2 * time.Second)
		p.upstream.ServeHTTP(w, r)
	case "cut":
		p.upstream.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), cut{}, true)))
	case "reset":
		reset(w)
	default:
		io.Copy(io.Discard, r.Body)
		status := 503
		fmt.Sscan(fault, &status)
		http.Error(w, "injected", status)
	}
}

// plan counts a request, and returns how long it is to wait and how it is to fail.
func (p *proxy) plan(name string) (time.Duration, string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.counts[name]++
	p.requests = append(p.requests, name)
	if !p.match.MatchString(name) {
		return 0, ""
	}
	latency := time.Duration(p.settings.LatencyMS) * time.Millisecond
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%s %s %d", p.settings.Salt, name, p.counts[name])
	sum := hash.Sum64()
	sum ^= sum >> 33 // FNV's low bits alone are too regular
	sum *= 0xff51afd7ed558ccd
	sum ^= sum >> 33
	if len(p.settings.Faults) == 0 || int(sum%100) >= p.settings.Percent {
		return latency, ""
	}
	fault := p.settings.Faults[int(sum/100)%len(p.settings.Faults)]
	p.faults[fault]++
	return latency, fault
}

func (p *proxy) control(w http.ResponseWriter, r *http.Request) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if r.Method == http.MethodPut {
		var settings Settings
		if err := json.NewDecoder(r.Body).Decode(&settings); err != nil {
			http.Error(w, err.Error(), 400)
			return
		}
		p.settings, p.match = settings, regexp.MustCompile(settings.Match)
		p.counts, p.faults, p.bytes = map[string]int{}, map[string]int{}, map[string]int{}
		p.requests = []string{}
	}
	state := map[string]any{"counts": p.counts, "faults": p.faults, "bytes": p.bytes}
	state["requests"] = p.requests
	json.NewEncoder(w).Encode(state)
}

// reset drops a connection so that its client sees "connection reset by peer".
func reset(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

// nameParts gives each request of a batch a Content-ID: Google's Python client sends none, Google
// does without, but fake-gcs-server drops such requests.
func nameParts(r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	const head = "Content-Type: application/http\n"
	for n := 1; ; n++ {
		named := strings.Replace(string(body), head, fmt.Sprintf("content-type: application/http\nContent-ID: <%d>\n", n), 1)
		if named == string(body) {
			break
		}
		body = []byte(named)
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", fmt.Sprint(len(body)))
}

// toJSON translates a write or deletion in Google's XML interface, which obstore uses, to the JSON
// interface, which is the only one that fake-gcs-server has for them.
func toJSON(r *http.Request) {
	bucket, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch r.Method {
	case http.MethodPut:
		query := url.Values{"uploadType": {"media"}, "name": {name}}
		if generation := r.Header.Get("x-goog-if-generation-match"); generation != "" {
			query.Set("ifGenerationMatch", generation)
		}
		r.Method, r.URL.Path, r.URL.RawPath = http.MethodPost, "/upload/storage/v1/b/"+bucket+"/o", ""
		r.URL.RawQuery = query.Encode()
	case http.MethodDelete:
		r.URL.Path = "/storage/v1/b/" + bucket + "/o/" + name
		r.URL.RawPath = "/storage/v1/b/" + bucket + "/o/" + url.PathEscape(name)
	}
}

// nameVersion gives the answer to an upload the headers that it has in Google's XML interface.
func nameVersion(r *http.Response) {
	body, _ := io.ReadAll(r.Body)
	var object struct{ Etag, Generation string }
	json.Unmarshal(body, &object)
	r.Header.Set("ETag", `"`+object.Etag+`"`)
	r.Header.Set("x-goog-generation", object.Generation)
	r.Body = io.NopCloser(bytes.NewReader(body))
}

// cut marks a request whose answer breaks off.
type cut struct{}

// halfBody gives the first half of a body, and breaks off.
type halfBody struct {
	io.ReadCloser
	left int64
}

func (b *halfBody) Read(data []byte) (int, error) {
	if b.left <= 0 {
		return 0, errors.New("cut")
	}
	n, err := b.ReadCloser.Read(data[:min(int64(len(data)), b.left)])
	b.left -= int64(n)
	return n, err
}

// countedBody counts the bytes of a body as they are sent.
type countedBody struct {
	io.ReadCloser
	p    *proxy
	name string
}

func (b *countedBody) Read(data []byte) (int, error) {
	n, err := b.ReadCloser.Read(data)
	b.p.mutex.Lock()
	defer b.p.mutex.Unlock()
	b.p.bytes[b.name] += n
	return n, err
}

func min(a, b int64) int64 {
	if a < b {
		return a
	}
	return b
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "where to listen")
	upstream := flag.String("upstream", "", "the store")
	flag.Parse()
	target, err := url.Parse(*upstream)
	if err != nil || target.Host == "" {
		log.Fatalf("-upstream %q: expected an address like http://127.0.0.1:9000", *upstream)
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s\n", listener.Addr())
	none := func() map[string]int { return map[string]int{} }
	p := &proxy{match: regexp.MustCompile(""), counts: none(), faults: none(), bytes: none()}
	p.upstream = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // it is part of what was signed
			r.Out.URL.RawPath, r.Out.URL.RawQuery = r.In.URL.RawPath, r.In.URL.RawQuery
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
		ModifyResponse: func(r *http.Response) error {
			if r.Request.URL.Query().Get("uploadType") == "media" && r.StatusCode == 200 {
				nameVersion(r)
			}
			if r.Request.Context().Value(cut{}) != nil && r.ContentLength > 1 {
				r.Body = &halfBody{r.Body, r.ContentLength / 2}
			}
			r.Body = &countedBody{r.Body, p, r.Request.Method + " " + r.Request.URL.Path}
			return nil
		},
		ErrorLog: log.New(io.Discard, "", 0),
	}
	log.Fatal(http.Serve(listener, p))
}
