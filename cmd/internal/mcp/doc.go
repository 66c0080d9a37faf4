// Package mcp is the front for agents: the tools space_job and space_thread over
// the Model Context Protocol, on stdio and over HTTP. It decodes a call, makes it
// through package api, and encodes what that returns; it decides nothing.
//
// A server is bound to one member when it is made, and no argument changes who
// asks. A fault is a result with isError and {error: {code, message, hint}}, in
// the words of the command line. What a tool returns is structured, and beside
// that stands a text that a model reads at a glance.
//
// Resources are told of when they change: space://inbox/<member>, of the member
// that the connection is bound to, and space://job/<id>, when the job has ended.
// That is how a client that waits is woken.
//
// Where the policy says that a person is to be asked, the client is asked to ask
// one, if it says that it can; what was approved is a request for exactly one
// start (see package api). RequestState carries its id, signed by this process.
package mcp
