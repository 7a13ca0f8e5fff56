// A client on one connection, over grpc-go: the HTTP/2 and HPACK of the kubelet, crictl and ctr.
//
// The protocol of its input and output is that of imgwarden_tests::client. Messages are made by hand, so that neither
// containerd's nor Kubernetes' modules are needed.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	namespace    = "k8s.io"
	removeImage  = "/runtime.v1.ImageService/RemoveImage"
	imageStatus  = "/runtime.v1.ImageService/ImageStatus"
	pullImage    = "/runtime.v1.ImageService/PullImage"
	getImage     = "/containerd.services.images.v1.Images/Get"
	deleteImage  = "/containerd.services.images.v1.Images/Delete"
	createImage  = "/containerd.services.images.v1.Images/Create"
	codecName    = "proto"
	usageMessage = "usage: client SOCKET [--warm-up]"
)

// bytesCodec passes messages through as bytes, under the name that servers expect.
type bytesCodec struct{}

func (bytesCodec) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }

func (bytesCodec) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func (bytesCodec) Name() string { return codecName }

type client struct {
	connection *grpc.ClientConn
	cri        context.Context
	native     context.Context
}

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

func serve() error {
	if len(os.Args) < 2 {
		return errors.New(usageMessage)
	}
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", address)
	}
	encoding.RegisterCodec(bytesCodec{})
	connection, err := grpc.Dial("passthrough:///"+os.Args[1],
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial), grpc.WithBlock())
	if err != nil {
		return err
	}
	defer connection.Close()
	background := context.Background()
	c := client{connection, background, metadata.AppendToOutgoingContext(background, "containerd-namespace", namespace)}
	if len(os.Args) > 2 && os.Args[2] == "--warm-up" {
		absent := "sha256:" + strings.Repeat("0", 64)
		for _, line := range []string{"remove-cri " + absent, "status " + absent} {
			if err := c.answer(line); err != nil {
				return err
			}
		}
	}
	fmt.Println("pid", os.Getpid())
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		if err := c.answer(input.Text()); err != nil {
			fmt.Println("err", strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("ok")
		}
	}
	return input.Err()
}

func (c client) answer(line string) error {
	words := strings.Split(line, " ")
	command, arguments := words[0], words[1:]
	switch {
	case command == "remove-cri" && len(arguments) == 1:
		_, err := c.call(c.cri, removeImage, field(1, imageSpec(arguments[0])))
		return err
	case command == "status" && len(arguments) == 1:
		_, err := c.call(c.cri, imageStatus, field(1, imageSpec(arguments[0])))
		return err
	case command == "pull" && len(arguments) == 3:
		auth := join(field(1, []byte(arguments[1])), field(2, []byte(arguments[2])))
		_, err := c.call(c.cri, pullImage, join(field(1, imageSpec(arguments[0])), field(2, auth)))
		return err
	case command == "delete" && len(arguments) == 1:
		_, err := c.call(c.native, deleteImage, field(1, []byte(arguments[0])))
		return err
	case command == "delete-create" && len(arguments) == 1:
		return c.deleteCreate(arguments[0])
	}
	return fmt.Errorf("no such command: %s", line)
}

// deleteCreate is a retag: Get's answer is field 1, the image, and so is Create's request.
func (c client) deleteCreate(name string) error {
	image, err := c.call(c.native, getImage, field(1, []byte(name)))
	if err != nil {
		return err
	}
	if _, err := c.call(c.native, deleteImage, field(1, []byte(name))); err != nil {
		return err
	}
	_, err = c.call(c.native, createImage, image)
	return err
}

func (c client) call(ctx context.Context, method string, request []byte) ([]byte, error) {
	var response []byte
	err := c.connection.Invoke(ctx, method, &request, &response)
	return response, err
}

// imageSpec is CRI's ImageSpec{1: image}.
func imageSpec(image string) []byte { return field(1, []byte(image)) }

func field(number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

func join(parts ...[]byte) []byte {
	var whole []byte
	for _, part := range parts {
		whole = append(whole, part...)
	}
	return whole
}
